"""Check mode: programs whose kernels may touch only the buffers that they were given.

frames.py   what a kernel may touch, as a linked list of tables on the stack
guard.py    the functions that look an access up there, and those that poison memory
module.py   a module that puts a guard before every load and store of kernels
calls.py    what a program does around the call of a kernel
"""
