"""The download of CIFAR-10, from a server on this machine: whole, broken off, altered, hostile."""

import hashlib
import io
import pickle
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from residuum.core.errors import InputError
from residuum.data import download_cifar10, load_dataset
from residuum.data.cifar import BATCHES, SHA256, URL


def batch(k):
    rows = np.full((10, 3072), k, dtype=np.uint8)
    return pickle.dumps({b"data": rows, b"labels": list(range(10))}, protocol=4)


def archive(members):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


GOOD = archive({f"cifar-10-batches-py/{name}": batch(k) for k, name in enumerate(BATCHES)})


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        content, announced, status = self.server.answer
        self.send_response(status)
        if announced is not None:
            self.send_header("Content-Length", str(announced))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        httpd.requests = []
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        httpd.url = f"http://127.0.0.1:{httpd.server_port}/cifar-10-python.tar.gz"
        yield httpd
        httpd.shutdown()
        thread.join()


def fetch(server, root, content, *, announced=-1, status=200, sha256=None, **options):
    server.answer = content, len(content) if announced == -1 else announced, status
    sha256 = sha256 or hashlib.sha256(content).hexdigest()
    return download_cifar10(root, url=server.url, sha256=sha256, timeout=5, **options)


def test_the_archive_is_fetched_with_progress_and_can_be_loaded(server, tmp_path):
    seen = []
    folder = fetch(server, tmp_path / "new" / "root", GOOD, progress=lambda done, total: seen.append((done, total)))
    assert folder == tmp_path / "new" / "root" / "cifar-10-batches-py"
    assert sorted(path.name for path in folder.iterdir()) == sorted(BATCHES)
    assert seen[-1] == (len(GOOD), len(GOOD))
    data = load_dataset("cifar10", root=tmp_path / "new" / "root")
    assert len(data.train) == 50
    assert data.train.x[0].unique().tolist() == [0]
    assert data.test.x[0].unique().tolist() == pytest.approx([5 / 255])
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_second_call_asks_nobody(server, tmp_path):
    fetch(server, tmp_path, GOOD)
    fetch(server, tmp_path, GOOD)
    assert len(server.requests) == 1


def test_a_server_that_does_not_say_the_length_is_believed_by_its_hash(server, tmp_path):
    seen = []
    assert fetch(server, tmp_path, GOOD, announced=None, progress=lambda *state: seen.append(state)).is_dir()
    assert seen[-1] == (len(GOOD), None)


def test_a_wrong_hash_is_refused_before_anything_is_unpacked(server, tmp_path, monkeypatch):
    monkeypatch.setattr(tarfile, "open", lambda *a, **k: pytest.fail("unpacked before the hash was checked"))
    with pytest.raises(InputError, match=f"expected SHA-256 {SHA256}, got .*nothing was unpacked"):
        fetch(server, tmp_path, GOOD, sha256=SHA256)
    assert list(tmp_path.iterdir()) == []


def test_a_transfer_that_breaks_off_is_refused(server, tmp_path):
    half = len(GOOD) // 2
    words = f"broke off after {half} of {len(GOOD)} bytes"
    with pytest.raises(InputError, match=words):
        fetch(server, tmp_path, GOOD[:half], announced=len(GOOD), sha256=hashlib.sha256(GOOD).hexdigest())
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_is_no_file_is_refused(server, tmp_path):
    with pytest.raises(InputError, match="answers 404"):
        fetch(server, tmp_path, b"gone", status=404)
    assert list(tmp_path.iterdir()) == []


def test_nobody_listening_is_said_in_one_line(tmp_path):
    with pytest.raises(InputError, match=r"cannot fetch http://127.0.0.1:9/x: .*; check that this machine is online"):
        download_cifar10(tmp_path, url="http://127.0.0.1:9/x", timeout=2)
    with pytest.raises(InputError, match="begins with http:// or https://, got 'file:///etc/passwd'"):
        download_cifar10(tmp_path, url="file:///etc/passwd")


@pytest.mark.parametrize("name", ["../outside", "/absolute/../../outside", "cifar-10-batches-py/../../outside"])
def test_members_that_leave_the_folder_are_refused(server, tmp_path, name):
    members = {f"cifar-10-batches-py/{batch_name}": batch(0) for batch_name in BATCHES}
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises(InputError, match=r"archive is unsafe: .*outside"):
        fetch(server, root, archive(members | {name: b"evil"}))
    assert list(root.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_a_link_that_leaves_the_folder_is_refused(server, tmp_path):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        link = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(InputError, match=r"archive is unsafe: .*absolute"):
        fetch(server, tmp_path, stream.getvalue())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("content", "words"), [(b"no archive", "cannot be unpacked"), (GOOD[:-40], "cannot be unp")])
def test_an_archive_that_cannot_be_read_is_refused(server, tmp_path, content, words):
    with pytest.raises(InputError, match=words):
        fetch(server, tmp_path, content)
    assert list(tmp_path.iterdir()) == []


def test_another_archive_is_refused(server, tmp_path):
    with pytest.raises(InputError, match="holds no folder cifar-10-batches-py"):
        fetch(server, tmp_path, archive({"other/file": b"1"}))
    assert list(tmp_path.iterdir()) == []


def test_an_incomplete_folder_is_left_alone(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "mine").touch()
    with pytest.raises(InputError, match=r"lacks some of data_batch_1.*remove it"):
        download_cifar10(tmp_path)
    assert (tmp_path / "cifar-10-batches-py" / "mine").exists()


def test_a_root_that_cannot_be_written_is_said_in_one_line(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot write below .*file"):
        fetch(server, tmp_path / "file", GOOD)


def test_the_official_archive_is_asked_for_by_default():
    assert URL.endswith("/cifar-10-python.tar.gz")
    assert download_cifar10.__kwdefaults__["url"] == URL
    assert download_cifar10.__kwdefaults__["sha256"] == SHA256
