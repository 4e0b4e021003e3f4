"""`weft view FILE`: serves a page on localhost."""

from __future__ import annotations

import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from weft.inspect.view.page import Page

__all__ = ["serve", "server"]


def server(page: Page, port: int = 0) -> ThreadingHTTPServer:
    """An HTTP server on localhost for the page, with its picture at /graph.svg."""
    answers = {
        "/": ("text/html; charset=utf-8", page.html.encode()),
        "/graph.svg": ("image/svg+xml", page.svg().encode()),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.split("?")[0])
            if found is None:
                self.send_error(404)
                return
            kind, body = found
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Do not log requests."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def serve(page: Page, port: int = 0, *, browse: bool = False) -> None:
    """Serve a page until Ctrl-C."""
    with server(page, port) as found:
        address = f"http://127.0.0.1:{found.server_address[1]}/"
        print(f"{page.title}: {address}  (Ctrl-C ends it)", flush=True)
        if browse:
            webbrowser.open(address)
        try:
            found.serve_forever()
        except KeyboardInterrupt:
            print()
