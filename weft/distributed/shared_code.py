"""Collectives between processes of one machine, as machine code over shared memory.

Each rank of a group has a segment that all of them can read. A message is a sequence of chunks:

- A rank copies its chunk number s to buffer s % DEPTH of its segment and stores s in `sent`;
  before, it waits until all ranks have read what was in that buffer.
- It waits until all ranks have `sent` s, reads their buffers in the order of ranks, writes its
  result, and stores s in `done`. Meanwhile its chunk s + 1 is there for others.

So a sum has the same bits on all ranks and for every size of message. With a chunk comes a digest
of the call; a rank that finds another one than its own stops with `DIFFERS`.

    i32 weft_exchange(ptr call, ptr args)

is a whole collective; `args` points to the addresses of the operand (or of its parts, one after
the other) and, at `out`, of the result, `call` to the words `CALL`. The operand has `blocks` blocks
of `count` elements. Without Python between, it can be called from machine code.

`weft_start` and `weft_finish`, with the same arguments, are its two halves: messages that were
started are finished in the order in which they were started. The first half takes the numbers of
its chunks and sends those for which there is room, the second one sends the others and waits.

A rank that waits watches the counter for some microseconds, then sleeps until it changes, and then
calls `slow`, which is Python: it lets signals in, and the watchdog sees that this rank waits.
"""

from __future__ import annotations

from weft.codegen.machine import Machine
from weft.runtime.pool.system import host_of

__all__ = [
    *("ALL", "CALL", "CHANNEL", "CHUNK", "DEPTH", "DIFFERS", "DONE", "EXPORTS", "ONE", "REDUCE"),
    *("SEGMENT", "SENT", "SIGNATURES", "shared_text"),
]

#: Words of a channel: chunks of messages that are finished, its rank, the number of ranks, the
#: function `slow`, chunks of messages that are started, chunks that are published; then the
#: addresses of all segments.
CHANNEL = ("sent", "rank", "size", "slow", "started", "published")
#: Words of a call: the function, the channel, the digest, the blocks of the operand, which block of
#: each rank's operand this rank reads, elements of a block, bytes of an element, how results are
#: made, from which rank (-1: zeros), whether the operand is read by anybody, what combines two
#: arrays, in which place of the arguments the result is, and how many operands it is in; then where
#: each of them begins and the last one ends.
CALL = (
    *("function", "channel", "digest", "blocks", "block", "count", "itemsize"),
    *("how", "source", "sends", "combine", "out", "parts"),
)
#: How a result is made of the blocks of all ranks: combined; all of them in order; one of them.
REDUCE, ALL, ONE = range(3)
#: Places in a segment: two counters, each on a cache line of its own, with the number of ranks that
#: sleep until it changes behind them; digests, the buffers.
SENT, DONE, SIGNATURES, SEGMENT = 0, 128, 256, 4096
SLEEPERS = 64
DEPTH, CHUNK = 4, 1 << 19
DIFFERS = -21
EXPORTS = ["weft_exchange", "weft_start", "weft_finish", "weft_here"]
#: Looks at a counter before a waiting rank sleeps, some 100 µs; and how long it sleeps, in ns,
#: before it calls Python.
SPINS, NAP = 2000, 20_000_000

_CORE = """
declare void @{pause}({pause_type})
declare i64 @syscall(i64, ...)
declare i32 @usleep(i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define internal ptr @segment(ptr %channel, i64 %rank) alwaysinline {{
  %n = add i64 %rank, {bases}
  %p = getelementptr ptr, ptr %channel, i64 %n
  %s = load ptr, ptr %p
  ret ptr %s
}}

; Whether all ranks have come to a number, in the counter at a place of their segments. For those
; that have not, wait: watch the counter for `%spins` looks, then sleep for at most {nap} ns.
define i32 @weft_here(ptr %channel, i64 %place, i64 %number, i64 %spins) nounwind {{
entry:
  %time = alloca [2 x i64]
  store i64 0, ptr %time
  %time.ns = getelementptr i64, ptr %time, i64 1
  store i64 {nap}, ptr %time.ns
  %size.at = getelementptr i64, ptr %channel, i64 {size}
  %size = load i64, ptr %size.at
  br label %head
head:
  %r = phi i64 [ 0, %entry ], [ %next, %on ]
  %more = icmp slt i64 %r, %size
  br i1 %more, label %of, label %all
of:
  %segment = call ptr @segment(ptr %channel, i64 %r)
  %at = getelementptr i8, ptr %segment, i64 %place
  br label %look
look:
  %i = phi i64 [ 0, %of ], [ %i.next, %spin ]
  %seen = load atomic i64, ptr %at acquire, align 8
  %come = icmp sge i64 %seen, %number
  br i1 %come, label %on, label %not
not:
  %i.next = add i64 %i, 1
  %early = icmp slt i64 %i, %spins
  br i1 %early, label %spin, label %tired
spin:
  call void @{pause}({pause_argument})
  br label %look
tired:                                            ; say so first, then look again
  %sleepers = getelementptr i8, ptr %at, i64 {sleepers}
  atomicrmw add ptr %sleepers, i64 1 seq_cst
  %again = load atomic i64, ptr %at seq_cst, align 8
  %late = icmp sge i64 %again, %number
  br i1 %late, label %up, label %sleep
sleep:
  %low = trunc i64 %again to i32
  {sleep}
  br label %up
up:
  atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %last = load atomic i64, ptr %at acquire, align 8
  %there = icmp sge i64 %last, %number
  br i1 %there, label %on, label %missing
on:
  %next = add i64 %r, 1
  br label %head
all:
  ret i32 1
missing:
  ret i32 0
}}

; Set a counter, and wake those that sleep.
define internal void @tell(ptr %at, i64 %number) nounwind {{
entry:
  store atomic i64 %number, ptr %at seq_cst, align 8
  %sleepers = getelementptr i8, ptr %at, i64 {sleepers}
  %count = load atomic i64, ptr %sleepers seq_cst, align 8
  %some = icmp ne i64 %count, 0
  br i1 %some, label %wake, label %end
wake:
  {wake}
  br label %end
end:
  ret void
}}

define internal i32 @wait(ptr %channel, i64 %place, i64 %number, i64 %digest) nounwind noinline {{
entry:
  %here = call i32 @weft_here(ptr %channel, i64 %place, i64 %number, i64 {spins})
  %come = icmp ne i32 %here, 0
  br i1 %come, label %good, label %python
python:
  %slow.at = getelementptr ptr, ptr %channel, i64 {slow}
  %slow = load ptr, ptr %slow.at
  %status = call i32 %slow(i64 %place, i64 %number, i64 %digest)
  ret i32 %status
good:
  ret i32 0
}}

; Write chunk `number` of the operand to this rank's segment, and say so.
define internal i32 @publish(ptr %call, ptr %args, i64 %number, i64 %from, i64 %n) nounwind {{
entry:
  %channel.at = getelementptr ptr, ptr %call, i64 {channel}
  %channel = load ptr, ptr %channel.at
  %digest.at = getelementptr i64, ptr %call, i64 {digest}
  %digest = load i64, ptr %digest.at
  %blocks.at = getelementptr i64, ptr %call, i64 {blocks}
  %blocks = load i64, ptr %blocks.at
  %count.at = getelementptr i64, ptr %call, i64 {count}
  %count = load i64, ptr %count.at
  %item.at = getelementptr i64, ptr %call, i64 {itemsize}
  %item = load i64, ptr %item.at
  %sends.at = getelementptr i64, ptr %call, i64 {sends}
  %sends = load i64, ptr %sends.at
  %rank.at = getelementptr i64, ptr %channel, i64 {rank}
  %rank = load i64, ptr %rank.at
  %mine = call ptr @segment(ptr %channel, i64 %rank)
  %old = sub i64 %number, {depth}
  %status = call i32 @wait(ptr %channel, i64 {done}, i64 %old, i64 %digest)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %free
failed:
  ret i32 %status
free:
  %turn = urem i64 %number, {depth}
  %start = mul i64 %turn, {chunk}
  %start.data = add i64 %start, {segment}
  %room = getelementptr i8, ptr %mine, i64 %start.data
  %bytes = mul i64 %n, %item
  %stride = mul i64 %count, %item
  %until = add i64 %from, %n
  %parts.at = getelementptr i64, ptr %call, i64 {parts}
  %parts = load i64, ptr %parts.at
  %any = icmp ne i64 %sends, 0
  br i1 %any, label %head, label %written
head:
  %b = phi i64 [ 0, %free ], [ %b.next, %b.end ]
  %more = icmp slt i64 %b, %blocks
  br i1 %more, label %copy, label %written
copy:
  %b.start = mul i64 %b, %stride
  %b.to = mul i64 %b, %bytes
  %to = getelementptr i8, ptr %room, i64 %b.to
  br label %part
part:                                             ; what of each operand is in this chunk
  %p = phi i64 [ 0, %copy ], [ %p.next, %p.end ]
  %starts = getelementptr i64, ptr %call, i64 {starts}
  %p.at = getelementptr i64, ptr %starts, i64 %p
  %p.start = load i64, ptr %p.at
  %p.next = add i64 %p, 1
  %q.at = getelementptr i64, ptr %starts, i64 %p.next
  %p.stop = load i64, ptr %q.at
  %low = call i64 @llvm.smax.i64(i64 %p.start, i64 %from)
  %high = call i64 @llvm.smin.i64(i64 %p.stop, i64 %until)
  %has = icmp sgt i64 %high, %low
  br i1 %has, label %take, label %p.end
take:
  %in.at = getelementptr ptr, ptr %args, i64 %p
  %in = load ptr, ptr %in.at
  %in.skip = sub i64 %low, %p.start
  %in.bytes = mul i64 %in.skip, %item
  %in.place = add i64 %in.bytes, %b.start
  %source = getelementptr i8, ptr %in, i64 %in.place
  %to.skip = sub i64 %low, %from
  %to.bytes = mul i64 %to.skip, %item
  %target = getelementptr i8, ptr %to, i64 %to.bytes
  %length = sub i64 %high, %low
  %length.bytes = mul i64 %length, %item
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %length.bytes, i1 false)
  br label %p.end
p.end:
  %p.more = icmp slt i64 %p.next, %parts
  br i1 %p.more, label %part, label %b.end
b.end:
  %b.next = add i64 %b, 1
  br label %head
written:
  %turn.bytes = mul i64 %turn, 8
  %sign.place = add i64 %turn.bytes, {signatures}
  %sign = getelementptr i8, ptr %mine, i64 %sign.place
  store i64 %digest, ptr %sign
  %sent = getelementptr i8, ptr %mine, i64 {sent_place}
  call void @tell(ptr %sent, i64 %number)
  ret i32 0
}}

; Read chunk `number` of all ranks to the result.
define internal i32 @collect(ptr %call, ptr %out, i64 %number, i64 %from, i64 %n) nounwind {{
entry:
  %channel.at = getelementptr ptr, ptr %call, i64 {channel}
  %channel = load ptr, ptr %channel.at
  %digest.at = getelementptr i64, ptr %call, i64 {digest}
  %digest = load i64, ptr %digest.at
  %block.at = getelementptr i64, ptr %call, i64 {block}
  %block = load i64, ptr %block.at
  %count.at = getelementptr i64, ptr %call, i64 {count}
  %count = load i64, ptr %count.at
  %item.at = getelementptr i64, ptr %call, i64 {itemsize}
  %item = load i64, ptr %item.at
  %how.at = getelementptr i64, ptr %call, i64 {how}
  %how = load i64, ptr %how.at
  %source.at = getelementptr i64, ptr %call, i64 {source}
  %source = load i64, ptr %source.at
  %combine.at = getelementptr ptr, ptr %call, i64 {combine}
  %combine = load ptr, ptr %combine.at
  %rank.at = getelementptr i64, ptr %channel, i64 {rank}
  %rank = load i64, ptr %rank.at
  %size.at = getelementptr i64, ptr %channel, i64 {size}
  %size = load i64, ptr %size.at
  %mine = call ptr @segment(ptr %channel, i64 %rank)
  %status = call i32 @wait(ptr %channel, i64 {sent_place}, i64 %number, i64 %digest)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %signs
failed:
  ret i32 %status
signs:
  %turn = urem i64 %number, {depth}
  %turn.bytes = mul i64 %turn, 8
  %sign.place = add i64 %turn.bytes, {signatures}
  %turn.start = mul i64 %turn, {chunk}
  %data = add i64 %turn.start, {segment}
  %bytes = mul i64 %n, %item
  %block.start = mul i64 %block, %bytes
  %first.place = add i64 %data, %block.start
  %skip = mul i64 %from, %item
  %stride = mul i64 %count, %item
  %to = getelementptr i8, ptr %out, i64 %skip
  br label %check
check:
  %c = phi i64 [ 0, %signs ], [ %c.next, %same ]
  %c.more = icmp slt i64 %c, %size
  br i1 %c.more, label %compare, label %choose
compare:
  %c.segment = call ptr @segment(ptr %channel, i64 %c)
  %c.at = getelementptr i8, ptr %c.segment, i64 %sign.place
  %c.digest = load i64, ptr %c.at
  %equal = icmp eq i64 %c.digest, %digest
  br i1 %equal, label %same, label %differs
same:
  %c.next = add i64 %c, 1
  br label %check
differs:
  ret i32 {differs}
choose:
  switch i64 %how, label %one [ i64 {REDUCE}, label %reduce  i64 {ALL}, label %all ]

one:
  %nobody = icmp slt i64 %source, 0
  br i1 %nobody, label %zeros, label %from.one
zeros:
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %bytes, i1 false)
  br label %finish
from.one:
  %o.segment = call ptr @segment(ptr %channel, i64 %source)
  %o.from = getelementptr i8, ptr %o.segment, i64 %first.place
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %o.from, i64 %bytes, i1 false)
  br label %finish

all:
  %a = phi i64 [ 0, %choose ], [ %a.next, %a.copy ]
  %a.more = icmp slt i64 %a, %size
  br i1 %a.more, label %a.copy, label %finish
a.copy:
  %a.segment = call ptr @segment(ptr %channel, i64 %a)
  %a.from = getelementptr i8, ptr %a.segment, i64 %first.place
  %a.place = mul i64 %a, %stride
  %a.to = getelementptr i8, ptr %to, i64 %a.place
  call void @llvm.memcpy.p0.p0.i64(ptr %a.to, ptr %a.from, i64 %bytes, i1 false)
  %a.next = add i64 %a, 1
  br label %all

reduce:
  %r0.segment = call ptr @segment(ptr %channel, i64 0)
  %r0 = getelementptr i8, ptr %r0.segment, i64 %first.place
  %alone = icmp eq i64 %size, 1
  br i1 %alone, label %copy.one, label %pairs
copy.one:
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %r0, i64 %bytes, i1 false)
  br label %finish
pairs:
  %r = phi i64 [ 1, %reduce ], [ %r.next, %pairs ]
  %left = phi ptr [ %r0, %reduce ], [ %to, %pairs ]
  %r.segment = call ptr @segment(ptr %channel, i64 %r)
  %right = getelementptr i8, ptr %r.segment, i64 %first.place
  call void %combine(ptr %to, ptr %left, ptr %right, i64 %n)
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %size
  br i1 %r.more, label %pairs, label %finish

finish:
  %done = getelementptr i8, ptr %mine, i64 {done}
  call void @tell(ptr %done, i64 %number)
  ret i32 0
}}

; How many elements of each block a chunk has, and how many chunks a message.
define internal i64 @per_chunk(ptr %call) alwaysinline {{
  %blocks.at = getelementptr i64, ptr %call, i64 {blocks}
  %blocks = load i64, ptr %blocks.at
  %item.at = getelementptr i64, ptr %call, i64 {itemsize}
  %item = load i64, ptr %item.at
  %all.item = mul i64 %blocks, %item
  %per = udiv i64 {chunk}, %all.item
  ret i64 %per
}}

define internal i64 @chunks(ptr %call, i64 %per) alwaysinline {{
  %count.at = getelementptr i64, ptr %call, i64 {count}
  %count = load i64, ptr %count.at
  %up = add i64 %count, %per
  %up.less = sub i64 %up, 1
  %found = udiv i64 %up.less, %per
  %some = call i64 @llvm.smax.i64(i64 %found, i64 1)
  ret i64 %some
}}

; Publish the chunks of a message that come after number `base`, up to number `last`, but for those
; that are published.
define internal i32 @publish_to(ptr %call, ptr %args, i64 %base, i64 %last, i64 %per) nounwind {{
entry:
  %channel.at = getelementptr ptr, ptr %call, i64 {channel}
  %channel = load ptr, ptr %channel.at
  %count.at = getelementptr i64, ptr %call, i64 {count}
  %count = load i64, ptr %count.at
  %published.at = getelementptr i64, ptr %channel, i64 {published}
  br label %head
head:
  %published = load i64, ptr %published.at
  %more = icmp slt i64 %published, %last
  br i1 %more, label %next, label %end
next:
  %number = add i64 %published, 1
  %place = sub i64 %published, %base
  %from = mul i64 %place, %per
  %rest = sub i64 %count, %from
  %n = call i64 @llvm.smin.i64(i64 %per, i64 %rest)
  %status = call i32 @publish(ptr %call, ptr %args, i64 %number, i64 %from, i64 %n)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %on
failed:
  ret i32 %status
on:
  store i64 %number, ptr %published.at
  br label %head
end:
  ret i32 0
}}

define i32 @weft_start(ptr %call, ptr %args) nounwind {{
entry:
  %channel.at = getelementptr ptr, ptr %call, i64 {channel}
  %channel = load ptr, ptr %channel.at
  %per = call i64 @per_chunk(ptr %call)
  %chunks = call i64 @chunks(ptr %call, i64 %per)
  %started.at = getelementptr i64, ptr %channel, i64 {started}
  %base = load i64, ptr %started.at
  %last = add i64 %base, %chunks
  store i64 %last, ptr %started.at
  %published.at = getelementptr i64, ptr %channel, i64 {published}
  %published = load i64, ptr %published.at
  %first = icmp eq i64 %published, %base
  br i1 %first, label %send, label %end
send:
  %finished = load i64, ptr %channel
  %room = add i64 %finished, {depth}
  %until = call i64 @llvm.smin.i64(i64 %room, i64 %last)
  %status = call i32 @publish_to(ptr %call, ptr %args, i64 %base, i64 %until, i64 %per)
  ret i32 %status
end:
  ret i32 0
}}

define i32 @weft_finish(ptr %call, ptr %args) nounwind {{
entry:
  %out.word = getelementptr i64, ptr %call, i64 {out}
  %out.place = load i64, ptr %out.word
  %out.at = getelementptr ptr, ptr %args, i64 %out.place
  %out = load ptr, ptr %out.at
  %channel.at = getelementptr ptr, ptr %call, i64 {channel}
  %channel = load ptr, ptr %channel.at
  %count.at = getelementptr i64, ptr %call, i64 {count}
  %count = load i64, ptr %count.at
  %per = call i64 @per_chunk(ptr %call)
  %chunks = call i64 @chunks(ptr %call, i64 %per)
  %base = load i64, ptr %channel
  %last = add i64 %base, %chunks
  br label %head
head:                                             ; the next chunk is there while this one is read
  %i = phi i64 [ 0, %entry ], [ %i.next, %on ]
  %i.next = add i64 %i, 1
  %number = add i64 %base, %i.next
  %ahead = add i64 %number, 1
  %until = call i64 @llvm.smin.i64(i64 %ahead, i64 %last)
  %status = call i32 @publish_to(ptr %call, ptr %args, i64 %base, i64 %until, i64 %per)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failed, label %here
failed:
  ret i32 %status
here:
  %from = mul i64 %i, %per
  %rest = sub i64 %count, %from
  %n = call i64 @llvm.smin.i64(i64 %per, i64 %rest)
  %status.here = call i32 @collect(ptr %call, ptr %out, i64 %number, i64 %from, i64 %n)
  %bad.here = icmp ne i32 %status.here, 0
  br i1 %bad.here, label %failed.here, label %on
failed.here:
  ret i32 %status.here
on:
  %more = icmp slt i64 %number, %last
  br i1 %more, label %head, label %end
end:
  store i64 %last, ptr %channel
  ret i32 0
}}

define i32 @weft_exchange(ptr %call, ptr %args) nounwind {{
  %channel.at = getelementptr ptr, ptr %call, i64 {channel}
  %channel = load ptr, ptr %channel.at
  %per = call i64 @per_chunk(ptr %call)
  %chunks = call i64 @chunks(ptr %call, i64 %per)
  %base = load i64, ptr %channel
  %last = add i64 %base, %chunks
  %started.at = getelementptr i64, ptr %channel, i64 {started}
  store i64 %last, ptr %started.at
  %status = call i32 @weft_finish(ptr %call, ptr %args)
  ret i32 %status
}}
"""


def shared_text(machine: Machine) -> str:
    """The text of the module."""
    host = host_of(machine.triple)
    assert host is not None
    futex = f"call i64 (i64, ...) @syscall(i64 {host.futex}, ptr %at"
    doze = "call i32 @usleep(i32 50)"
    channel = {name: i for i, name in enumerate(CHANNEL) if name != "sent"}
    call = {name: CALL.index(name) for name in CALL}
    return _CORE.format(
        **channel,
        **call,
        starts=len(CALL),
        pause=host.pause,
        pause_type=host.how_long.partition(" ")[0],
        pause_argument=host.how_long,
        bases=len(CHANNEL),
        spins=SPINS,
        nap=NAP,
        sleepers=SLEEPERS,
        sleep=f"{futex}, i32 0, i32 %low, ptr %time, ptr null, i32 0)" if host.futex else doze,
        wake=f"{futex}, i32 1, i32 2147483647, ptr null, ptr null, i32 0)" if host.futex else "",
        depth=DEPTH,
        chunk=CHUNK,
        segment=SEGMENT,
        signatures=SIGNATURES,
        sent_place=SENT,
        done=DONE,
        differs=DIFFERS,
        REDUCE=REDUCE,
        ALL=ALL,
    )
