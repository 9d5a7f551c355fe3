"""Films: the file holds the frames that were shown, and a missing ffmpeg is named."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

from feelgood.training import films

COLOURS = [np.full((9, 13, 3), (20 * i, 0, 200), np.uint8) for i in range(4)]


@pytest.fixture
def no_ffmpeg(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(films.importlib.util, "find_spec", lambda name: None)


def test_without_ffmpeg_one_sentence_names_it_and_the_way_out(no_ffmpeg, tmp_path):
    films.check_film(tmp_path / "film.GIF")
    with pytest.raises(ValueError, match="needs ffmpeg, which is not installed: pip install imageio-ffmpeg") as caught:
        films.check_film(tmp_path / "film.mp4")
    assert "\n" not in str(caught.value)


@pytest.fixture
def echo(monkeypatch, tmp_path):
    """Stands in for ffmpeg: writes its options and its input to the film, and fails if a film is called bad.mp4."""
    program = tmp_path / "ffmpeg"
    code = "import sys; data = sys.stdin.buffer.read(); bad = 'bad.mp4' in sys.argv[-1]; "
    code += (
        "bad and sys.exit('broken'); open(sys.argv[-1], 'wb').write(' '.join(sys.argv[1:-1]).encode() + b'|' + data)"
    )
    program.write_text(f"#!{sys.executable}\n{code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(program))


@pytest.mark.parametrize(("pictures", "kind"), [(COLOURS, "rgb24"), ([c[..., 0] for c in COLOURS], "gray")])
def test_ffmpeg_gets_every_pixel_and_the_size_and_speed(echo, tmp_path, pictures, kind):
    films.check_film(tmp_path / "film.mp4")
    films.write_film(tmp_path / "film.mp4", pictures, 12.5)
    options, _, data = (tmp_path / "film.mp4").read_bytes().partition(b"|")
    assert f"-f rawvideo -pix_fmt {kind} -s 13x9 -r 12.5 -i -".encode() in options
    assert options.endswith(b"-f mp4")
    assert data == np.stack(pictures).tobytes()


def test_an_ffmpeg_that_fails_gives_its_reason_and_leaves_nothing(echo, tmp_path):
    with pytest.raises(OSError, match="ffmpeg cannot write the film: broken"):
        films.write_film(tmp_path / "bad.mp4", COLOURS, 30)
    assert not list(tmp_path.glob("bad*"))


@pytest.mark.skipif(films._ffmpeg() is None, reason="ffmpeg is not installed")
def test_ffmpeg_reads_the_same_film_back(tmp_path):
    path = tmp_path / "film.mp4"
    films.write_film(path, COLOURS, 10)
    command = [films._ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    back = np.frombuffer(data, np.uint8).reshape(4, 10, 14, 3)  # even sides; pairs of pixels share a colour
    np.testing.assert_allclose(back[:, :8, :12], np.stack(COLOURS)[:, :8, :12], atol=12)
