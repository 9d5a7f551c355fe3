"""Films: pictures written as a GIF, or as an MP4 by ffmpeg."""

import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from feelgood.files import atomically


def check_film(path: Path) -> None:
    """Requires a path that `write_film` can write to."""
    if path.suffix.lower() not in (".gif", ".mp4"):
        raise ValueError(f"path of a recording must end in .gif or .mp4, got {str(path)!r}")
    if path.suffix.lower() == ".mp4" and _ffmpeg() is None:
        how = "pip install imageio-ffmpeg, or choose a path that ends in .gif"
        raise ValueError(f"path of a recording {str(path)!r} needs ffmpeg, which is not installed: {how}")


def _ffmpeg() -> str | None:
    """Returns the path of the system's ffmpeg, or else of the one in the package imageio-ffmpeg."""
    found = shutil.which("ffmpeg")
    if found is None and importlib.util.find_spec("imageio_ffmpeg") is not None:
        found = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    return found


def write_film(path: Path, pictures: Sequence[np.ndarray], frames_per_second: int | float) -> None:
    """Writes pictures of equal shape, uint8 in grey (height, width) or colour (height, width, 3), as a GIF or MP4."""
    if path.suffix.lower() == ".gif":
        from PIL import Image

        first, *rest = map(Image.fromarray, pictures)
        film = {"save_all": True, "append_images": rest, "duration": 1000 / frames_per_second, "loop": 0}
        atomically(path, lambda partial: first.save(partial, "GIF", **film))
        return
    height, width = pictures[0].shape[:2]
    kind = "gray" if pictures[0].ndim == 2 else "rgb24"
    source = ["-f", "rawvideo", "-pix_fmt", kind, "-s", f"{width}x{height}", "-r", f"{frames_per_second:g}", "-i", "-"]
    # Players need this pixel format, and the format needs even sides.
    even = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"]
    command = [str(_ffmpeg()), "-y", "-loglevel", "error", *source, *even, "-movflags", "+faststart", "-f", "mp4"]
    data = b"".join(map(np.ndarray.tobytes, pictures))

    def encode(partial: Path) -> None:
        done = subprocess.run([*command, str(partial)], input=data, capture_output=True)
        if done.returncode:
            raise OSError(f"ffmpeg cannot write the film: {done.stderr.decode(errors='replace').strip()}")

    atomically(path, encode)
