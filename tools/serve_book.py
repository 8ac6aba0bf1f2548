"""Serve the built book on this machine only: ``python tools/serve_book.py --port 8000``."""

import argparse
import functools
import http.server
import sys
from pathlib import Path


def main() -> int:
    """Serve until interrupted; 1 where there is no book or the port is taken."""
    parser = argparse.ArgumentParser(description="Serve the built book on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=8000)
    port = parser.parse_args().port
    pages = Path(__file__).resolve().parents[1] / "_build" / "html"
    if not (pages / "index.html").is_file():
        print("kvedu: there is no built book yet; run `make book` first.", file=sys.stderr)
        return 1
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(pages))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        print(
            f"kvedu: port {port} cannot be used ({error.strerror}); try `make serve PORT={port + 1}`.", file=sys.stderr
        )
        return 1
    print(f"The book is at http://127.0.0.1:{server.server_port}/ (Ctrl-C ends it).", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
