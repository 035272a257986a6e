"""A Hugging Face hub on this machine: folders of data sets, served as its clients ask for them."""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"  # that main stands for


@contextlib.contextmanager
def hub(folder: Path) -> Generator[tuple[str, list[str]]]:
    """Serve `folder/<owner>/<name>` at every commit; its address, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.command} {self.path}")
            path = self.path.partition("?")[0].replace("%2F", "/")
            if found := re.fullmatch(r"/api/datasets/([\w.-]+/[\w.-]+)(?:/revision/(\w+))?", path):
                self.info(*found.groups())
            elif found := re.fullmatch(r"/api/datasets/([\w.-]+/[\w.-]+)/tree/(\w+)(?:/(.*))?", path):
                self.tree(*found.groups())
            elif found := re.fullmatch(r"/datasets/([\w.-]+/[\w.-]+)/resolve/(\w+)/(.+)", path):
                self.file(*found.groups())
            else:
                self.say(404, b"")

        do_HEAD = do_GET  # noqa: N815

        def known(self, repo: str, revision: str | None) -> bool:
            if (folder / repo).is_dir() and commit(revision):
                return True
            kind = "RevisionNotFound" if (folder / repo).is_dir() else "RepoNotFound"
            self.say(404, b"", {"X-Error-Code": kind})
            return False

        def info(self, repo: str, revision: str | None) -> None:
            if self.known(repo, revision):
                files = [{"rfilename": name} for name in self.files(repo)]
                self.answer(
                    {"id": repo, "sha": commit(revision), "siblings": files, "tags": [], "private": False}
                )

        def tree(self, repo: str, revision: str, under: str | None) -> None:
            if self.known(repo, revision):
                top = folder / repo / (under or "")
                inside = top.rglob("*") if "recursive=true" in self.path.lower() else top.glob("*")
                paths = [str(path.relative_to(folder / repo)) for path in sorted(inside)]
                self.answer([self.entry(repo, path) for path in paths])

        def entry(self, repo: str, path: str) -> dict[str, object]:
            file = folder / repo / path
            if file.is_dir():
                return {"type": "directory", "path": path, "oid": "0" * 40, "size": 0}
            return {"type": "file", "path": path, "oid": oid(file), "size": file.stat().st_size}

        def files(self, repo: str) -> list[str]:
            return sorted(
                str(p.relative_to(folder / repo)) for p in (folder / repo).rglob("*") if p.is_file()
            )

        def file(self, repo: str, revision: str, path: str) -> None:
            if not self.known(repo, revision):
                return
            file = folder / repo / path
            if not file.is_file():
                self.say(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            self.say(200, file.read_bytes(), {"ETag": f'"{oid(file)}"', "X-Repo-Commit": commit(revision)})

        def answer(self, value: object) -> None:
            self.say(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def say(self, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(code)
            for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()


def commit(revision: str | None) -> str:
    """What a revision stands for, "" if nothing."""
    if revision in (None, "main"):
        return COMMIT
    return revision if re.fullmatch("[0-9a-f]{40}", revision or "") else ""


def oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
