"""Pictures in files: their pixels against Pillow step by step, lazily, by threads, with bounded memory."""

import os
import pickle
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from residuum.core.errors import InputError
from residuum.core.samples import Samples
from residuum.data import images
from residuum.data.images import ImageFiles, checked_size, read_square
from residuum.models import build_model, forward
from residuum.training import Recipe, train


def picture(width, height, seed=0):
    """Return smooth colors, so that JPEG hardly changes them."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [np.sin(rows / (3 + k + seed) + k) * np.cos(columns / (4 + k)) for k in range(3)]
    return Image.fromarray(((np.stack(waves, -1) + 1) * 127).astype(np.uint8), "RGB")


@pytest.fixture
def files(tmp_path):
    names = tuple(f"{k}.png" for k in range(6))
    for k, name in enumerate(names):
        picture(8, 8, k).save(tmp_path / name)
    return ImageFiles(tmp_path, names, 8)


def pixels_of(path):
    return torch.from_numpy(np.array(Image.open(path).convert("RGB"))).permute(2, 0, 1) / 255


def test_pixels_are_the_files_bytes_over_255(files):
    x = files.read(torch.tensor([4, 0, 2]))()
    assert x.dtype == torch.float32
    assert x.is_contiguous()
    for row, k in zip(x, (4, 0, 2), strict=True):
        assert torch.equal(row, pixels_of(files.root / f"{k}.png"))


def test_a_picture_asked_for_twice_is_decoded_once(files, monkeypatch):
    decoded = []
    monkeypatch.setattr("residuum.data.images.read_square", lambda *a: decoded.append(a) or read_square(*a))
    x = files.read(torch.tensor([3, 1, 3, 3, 1]))()
    assert len(decoded) == 2
    assert torch.equal(x, torch.stack([pixels_of(files.root / f"{k}.png") for k in (3, 1, 3, 3, 1)]))


def test_no_positions_give_no_pixels(files):
    assert files.read(torch.empty(0, dtype=torch.int64))().shape == (0, 3, 8, 8)


def test_a_subset_keeps_the_order_asked_for(files):
    part = files.subset(torch.tensor([5, 1]))
    assert part.names == ("5.png", "1.png")
    assert part.shape == (2, 3, 8, 8)


@pytest.mark.parametrize(("width", "height", "size"), [(40, 24, 24), (24, 40, 24), (41, 24, 16), (10, 30, 16)])
def test_the_middle_is_cut_and_scaled(tmp_path, width, height, size):
    picture(width, height).save(tmp_path / "a.png")
    square = read_square(tmp_path / "a.png", size)
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    whole = Image.open(tmp_path / "a.png")
    assert square.shape == (size, size, 3)
    if side == size and left == int(left):  # no scaling: the bytes themselves
        assert np.array_equal(square, np.asarray(whole)[int(top) : int(top) + side, int(left) : int(left) + side])
    else:
        box = (left, top, left + side, top + side)
        assert np.array_equal(square, np.asarray(whole.resize((size, size), Image.Resampling.BILINEAR, box=box)))


def test_shrinking_averages_and_growing_keeps_a_constant(tmp_path):
    checks = np.indices((64, 64)).sum(0) % 2 * 255
    Image.fromarray(checks.astype(np.uint8), "L").save(tmp_path / "checks.png")
    assert np.abs(read_square(tmp_path / "checks.png", 8).astype(int) - 127).max() <= 8
    Image.new("RGB", (64, 64), (10, 20, 30)).save(tmp_path / "flat.png")
    assert np.unique(read_square(tmp_path / "flat.png", 224).reshape(-1, 3), axis=0).tolist() == [[10, 20, 30]]


def test_a_jpeg_decoded_at_a_fraction_is_close_to_the_whole(tmp_path):
    picture(640, 480).save(tmp_path / "a.jpg", quality=95)
    box = (80, 0, 560, 480)  # the largest square in the middle
    whole = Image.open(tmp_path / "a.jpg").resize((48, 48), Image.Resampling.BILINEAR, box=box)
    assert np.abs(read_square(tmp_path / "a.jpg", 48).astype(int) - np.asarray(whole).astype(int)).mean() < 3


def test_gray_palette_and_cmyk_become_rgb(tmp_path):
    gray = Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8), "L")
    gray.save(tmp_path / "gray.png")
    gray.convert("P").save(tmp_path / "palette.png")
    Image.new("CMYK", (8, 8), (255, 0, 0, 0)).save(tmp_path / "cmyk.jpg")
    gray.convert("RGB").convert("RGBA").save(tmp_path / "opaque.png")
    for name in ("gray.png", "palette.png", "opaque.png"):
        assert checked_size(tmp_path / name) == (8, 8)
        assert np.array_equal(read_square(tmp_path / name, 8), np.asarray(gray)[:, :, None].repeat(3, 2))
    assert checked_size(tmp_path / "cmyk.jpg") == (8, 8)
    assert np.abs(read_square(tmp_path / "cmyk.jpg", 8).astype(int) - [0, 255, 255]).max() < 5


def write(path, content):
    path.write_bytes(content)
    return path


def bytes_of(path, image, **options):
    image.save(path, **options)
    return path.read_bytes()


def test_what_is_no_picture_is_refused_by_name(tmp_path):
    cases = {"empty.jpg": b"", "text.png": b"hello", "header.png": bytes_of(tmp_path / "x.png", picture(8, 8))[:20]}
    for name, content in cases.items():
        with pytest.raises(InputError, match=f"cannot use .*{name}: .*replace the file or remove it"):
            checked_size(write(tmp_path / name, content))
    with pytest.raises(InputError, match=r"cannot use .*gone\.png: .*No such file"):
        checked_size(tmp_path / "gone.png")


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.bmp", "a.webp"])
def test_a_truncated_picture_is_found_before_it_is_needed(tmp_path, name):
    content = bytes_of(tmp_path / name, picture(64, 64))
    assert checked_size(tmp_path / name) == (64, 64)
    write(tmp_path / name, content[: len(content) * 2 // 3])
    with pytest.raises(InputError, match=f"cannot use .*{name}"):
        checked_size(tmp_path / name)
    with pytest.raises(InputError, match=f"cannot use .*{name}"):
        read_square(tmp_path / name, 32)


def test_a_picture_with_bytes_after_its_end_is_fine(tmp_path):
    content = bytes_of(tmp_path / "a.jpg", picture(64, 64))
    assert checked_size(write(tmp_path / "a.jpg", content + bytes(5000))) == (64, 64)


def test_transparent_and_deep_pictures_are_refused(tmp_path):
    Image.new("RGBA", (8, 8), (1, 2, 3, 128)).save(tmp_path / "glass.png")
    with pytest.raises(InputError, match=r"glass\.png: it has transparent pixels.*put it on a background"):
        checked_size(tmp_path / "glass.png")
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(InputError, match=r"deep\.png: mode I;16; expected gray or color of 8 bits"):
        checked_size(tmp_path / "deep.png")


def test_a_file_that_breaks_later_is_named_when_it_is_read(files):
    reading = files.read(torch.tensor([0, 1]))
    reading()
    (files.root / "1.png").write_bytes(b"broken")
    with pytest.raises(InputError, match=r"cannot use .*1\.png: it is not an image"):
        files.read(torch.tensor([0, 1]))()


def test_the_fingerprint_is_the_files_content(files, tmp_path):
    before = files.fingerprint
    assert ImageFiles(files.root, files.names, 8).fingerprint == before
    picture(8, 8, 9).save(files.root / "3.png")
    changed = ImageFiles(files.root, files.names, 8).fingerprint
    assert changed != before
    picture(8, 8, 3).save(files.root / "3.png")
    os.utime(files.root / "3.png", (1, 1))
    assert ImageFiles(files.root, files.names, 8).fingerprint == before


def test_lazy_samples_train_and_answer_as_those_in_memory(files):
    y, ids = torch.tensor([0, 1, 0, 1, 0, 1]), tuple("abcdef")
    lazy = Samples(files, y, ids)
    held = Samples(lazy.batch(torch.arange(6))[0], y, ids)
    start = build_model("cnn", (3, 8, 8), 2, width=2, seed=1)
    recipe = Recipe(epochs=3, lr=0.05, batch_size=4, augment=True)
    first, second = (train(start, samples, recipe, seed=2) for samples in (lazy, held))
    assert torch.equal(forward(first, lazy, batch_size=4), forward(second, held, batch_size=4))
    assert lazy.subset([4, 2]).shape == (3, 8, 8)
    assert torch.equal(lazy.subset([4, 2]).batch(torch.tensor([1]))[0], held.x[[2]])


def test_batches_read_one_part_ahead_and_no_more(files):
    started = []

    class Watched(ImageFiles):
        def read(self, indices):
            started.append(indices.tolist())
            return super().read(indices)

    samples = Samples(Watched(files.root, files.names, 8), torch.zeros(6, dtype=torch.int64), files.names)
    seen = []
    for x, y, rows in samples.batches(torch.arange(6).split(2)):
        seen.append(len(started))
        assert torch.equal(x, samples.batch(rows)[0])
        assert len(y) == 2
        started.pop()
    assert seen[0] == 2
    assert list(samples.batches([])) == []


def test_memory_does_not_grow_with_the_number_of_pictures(tmp_path):
    picture(64, 64).save(tmp_path / "a.png")
    (tmp_path / "many").mkdir()
    names = tuple(f"many/{k}.png" for k in range(400))
    for name in names:
        os.link(tmp_path / "a.png", tmp_path / name)

    def peak(count):
        samples = Samples(ImageFiles(tmp_path, names[:count], 64), torch.zeros(count, dtype=torch.int64), names[:count])
        tracemalloc.start()
        for _ in samples.batches(torch.arange(count).split(10)):
            pass
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(20)
    assert peak(400) < 1.5 * peak(40)


def png_of_16_bits(channels):
    """Return a PNG with 16 bits in each of 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGB, alpha) channels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + bytes([255] * 8 * channels * 2) for _ in range(8))
    header = struct.pack(">IIBBBBB", 8, 8, 16, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_16_bits_per_channel_are_refused_in_png(tmp_path, channels):
    with pytest.raises(InputError, match=r"deep\.png: mode .*; expected gray or color of 8 bits per channel"):
        checked_size(write(tmp_path / "deep.png", png_of_16_bits(channels)))


def test_16_bits_per_channel_are_refused_in_ppm_and_tiff(tmp_path):
    with pytest.raises(InputError, match="8 bits per channel"):
        checked_size(write(tmp_path / "deep.ppm", b"P6 8 8 65535\n" + bytes(8 * 8 * 6)))
    for name, most in (("plain.ppm", 255), ("shallow.ppm", 15)):
        assert checked_size(write(tmp_path / name, b"P6 8 8 %d\n" % most + bytes(8 * 8 * 3))) == (8, 8)
    picture(8, 8).save(tmp_path / "deep.tif")
    entries = b"II*\0" + struct.pack("<IH", 8, 10)
    pixels, bits = 8 + 2 + 10 * 12 + 4, 8 + 2 + 10 * 12 + 4 + 8 * 8 * 6
    tags = [(256, 3, 1, 8), (257, 3, 1, 8), (258, 3, 3, bits), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, pixels)]
    tags += [(277, 3, 1, 3), (278, 3, 1, 8), (279, 4, 1, 8 * 8 * 6), (284, 3, 1, 1)]
    entries += b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    deep = write(tmp_path / "deep.tif", entries + bytes(8 * 8 * 6) + struct.pack("<3H", 16, 16, 16))
    with Image.open(deep) as image:
        assert image.mode == "RGB"  # Pillow drops the lower bytes without a word
    with pytest.raises(InputError, match="8 bits per channel"):
        checked_size(deep)


def test_a_folder_that_fits_in_memory_is_decoded_once_and_a_changed_file_again(tmp_path, monkeypatch):
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir()
        Image.new("L", (8, 8), 51).save(tmp_path / name)
    read, decoded = images.read_square, []
    monkeypatch.setattr(images, "read_square", lambda *given: decoded.append(given[0].name) or read(*given))
    samples = images.load_image_folder(tmp_path, channels=1).train
    first = samples.batch(torch.tensor([1, 0, 1]))[0]
    assert torch.equal(samples.subset([1])[0][0], first[0])
    assert sorted(decoded) == ["1.png", "2.png"]
    Image.new("L", (8, 8), 255).save(tmp_path / "b" / "2.png")
    assert samples[1][0].unique().tolist() == [1.0]
    assert samples[0][0].unique().tolist() == [pytest.approx(0.2)]
    assert len(decoded) == 3
    assert len(samples.x.decoded) == 2
    assert len(pickle.loads(pickle.dumps(samples)).x.decoded) == 0
    monkeypatch.setattr(images, "machine_memory", lambda: 8 * 2 * 64 - 1)
    assert images.load_image_folder(tmp_path, channels=1).train.x.decoded is None
