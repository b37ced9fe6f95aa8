"""train.py as its users run it: as a program, in a folder of their own."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import numpy as np
import pytest

import tinyadept as ta
from tinyadept import io
from tinyadept.data import digits

ROOT = Path(__file__).parents[1]
PACKAGES = ("tinyadept", "backends", "glsl", "models")
CHECKPOINT = "checkpoint.safetensors"


def train(*arguments: object, python: object = sys.executable, cwd: Path = ROOT, **variables: str):
    environment = (
        {k: v for k, v in os.environ.items() if k != "TINYADEPT_DEVICE"}
        | {"OPENBLAS_NUM_THREADS": "1"}
        | variables
    )
    command = [str(python), str(cwd / "train.py"), *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def trained(*arguments: object, **options) -> str:
    result = train(*arguments, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refused(*arguments: object, **variables: str) -> str:
    """The one line of a run that must fail."""
    result = train(*arguments, **variables)
    assert result.returncode not in (0, -2)
    lines = result.stderr.strip().splitlines()
    assert "Traceback" not in result.stderr
    assert len([line for line in lines if line.startswith("train.py: ")]) == 1
    return lines[-1]


def losses(stdout: str) -> list[str]:
    return re.findall(r"loss (\S+)  test accuracy (\S+)", stdout)


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> tuple[Path, str]:
    """The folder and the output of three epochs without interruption."""
    folder = tmp_path_factory.mktemp("straight")
    return folder, trained("digits", "--epochs", 3, "--batch", 256, "--seed", 5, "--out", folder)


def test_resume_continues_bit_for_bit(straight, tmp_path):
    folder, told = straight
    first = trained("digits", "--epochs", 1, "--batch", 256, "--seed", 5, "--out", tmp_path)
    second = trained("digits", "--epochs", 3, "--resume", tmp_path, "--out", tmp_path)
    assert losses(first) + losses(second) == losses(told)
    once, twice = io.load(folder / CHECKPOINT), io.load(tmp_path / CHECKPOINT)
    assert once.keys() == twice.keys()
    for name, x in once.items():
        assert x.numpy().tobytes() == twice[name].numpy().tobytes(), name
    assert io.load_metadata(folder / CHECKPOINT) == io.load_metadata(tmp_path / CHECKPOINT)


def test_what_a_run_leaves_and_prints(straight):
    folder, told = straight
    assert re.fullmatch(r"test accuracy: 0\.\d{3}", told.splitlines()[-1])
    assert len(losses(told)) == 3
    assert (folder / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert {file.name for file in folder.iterdir()} == {CHECKPOINT, "learning-curve.png"}


def test_seed_decides(straight, tmp_path):
    _, told = straight
    assert losses(trained("--epochs", 1, "--batch", 256, "--seed", 5, "--out", tmp_path)) == losses(told)[:1]
    assert losses(trained("--epochs", 1, "--batch", 256, "--seed", 6, "--out", tmp_path)) != losses(told)[:1]


def test_resume_of_a_finished_run_repeats_its_result(straight):
    folder, told = straight
    assert (
        trained("--epochs", 3, "--resume", folder / CHECKPOINT, "--out", folder)
        == told.splitlines()[-1] + "\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("--epochs", 0),
        ("--batch", -1),
        ("--lr", "nan"),
        ("--lr", 0),
        ("--seed", "x"),
        ("mnist",),
        ("--epochs", "1.5"),
    ],
)
def test_bad_arguments(arguments):
    result = train(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[-1].startswith("train.py: error: ")


def test_device_that_cannot_start(tmp_path):
    assert "'tpu'" in refused("--device", "tpu", "--out", tmp_path)
    assert "'tpu'" in refused("--out", tmp_path, TINYADEPT_DEVICE="tpu")


def test_unusable_checkpoints(straight, tmp_path):
    whole = (straight[0] / CHECKPOINT).read_bytes()
    assert "no checkpoint" in refused("--resume", tmp_path / "absent", "--out", tmp_path)
    for name, content in (("empty", b""), ("text", b"not a checkpoint"), ("cut", whole[: len(whole) // 2])):
        (tmp_path / name).write_bytes(content)
        assert f"{name} is no checkpoint" in refused("--resume", tmp_path / name, "--out", tmp_path)
    io.save(tmp_path / "strange", {"x": ta.zeros(3)})
    assert "strange is no checkpoint" in refused("--resume", tmp_path / "strange", "--out", tmp_path)
    assert "--seed 5" in refused("--resume", straight[0], "--seed", 6, "--out", tmp_path)


def test_unusable_out_folder(tmp_path):
    (tmp_path / "file").touch()
    assert "--out" in refused("--out", tmp_path / "file")


def test_interruption_leaves_the_last_checkpoint(straight, tmp_path):
    command = [
        sys.executable,
        str(ROOT / "train.py"),
        "--batch",
        "256",
        "--seed",
        "5",
        "--out",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith("epoch  1/30")
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read().strip().startswith("train.py: interrupted")
    assert {file.name for file in tmp_path.iterdir()} == {CHECKPOINT}
    trained("--epochs", 3, "--resume", "--out", tmp_path)
    once, twice = io.load(straight[0] / CHECKPOINT), io.load(tmp_path / CHECKPOINT)
    assert all((x.numpy() == twice[name].numpy()).all() for name, x in once.items())


def test_diverging_loss_ends_the_run(tmp_path):
    assert "smaller --lr" in refused("--epochs", 3, "--lr", 1e30, "--out", tmp_path)


def test_digits():
    (images, labels), (unseen, answers), (every, _) = map(digits.load, ("train", "test", "all"))
    assert (
        images.shape == (1438, 1, 8, 8) and unseen.shape == (359, 1, 8, 8) and every.shape == (1797, 1, 8, 8)
    )
    assert images.dtype == np.float32 and labels.dtype == np.int32
    assert images.min() == 0 and images.max() == 1
    counts = np.bincount(labels), np.bincount(answers)
    assert (abs(counts[1] - (counts[0] + counts[1]) / 5) <= 0.5).all()
    parts = np.concatenate([images, unseen]).reshape(-1, 64)
    assert (parts[np.lexsort(parts.T)] == every.reshape(-1, 64)[np.lexsort(every.reshape(-1, 64).T)]).all()
    with pytest.raises(ValueError, match="'validation'"):
        digits.load("validation")


def test_distorted_digits():
    images, _ = digits.load("test")
    chance = np.full((5, len(images)), 0.5)
    np.testing.assert_allclose(digits.distorted(images, chance), images)
    chance[3] = 1
    halfway = (images[:, :, :-1] + images[:, :, 1:]) / 2
    np.testing.assert_allclose(digits.distorted(images, chance)[:, :, :-1], halfway, atol=1e-6)
    for extreme in (0, 1):
        assert digits.distorted(images, np.full((5, len(images)), extreme)).shape == images.shape


@pytest.mark.slow
def test_defaults_reach_98_percent(tmp_path):
    assert float(trained("--out", tmp_path).split()[-1]) >= 0.98


def listed_packages() -> list[str]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]


def test_every_package_is_listed():
    found = [file.parent for root in PACKAGES for file in (ROOT / root).rglob("__init__.py")]
    names = {".".join(("tinyadept", *folder.relative_to(ROOT).parts)) for folder in found}
    assert set(listed_packages()) == {name.replace("tinyadept.tinyadept", "tinyadept") for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wheel", "strict", "lenient", "uninstalled"])
def test_runs_however_it_is_installed(way, tmp_path):
    """From the root of a checkout, whose ./tinyadept hides the installed one."""
    checkout, env = tmp_path / "checkout", tmp_path / "env"
    shutil.copytree(
        ROOT, checkout, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "runs")
    )
    venv.create(env, system_site_packages=False, with_pip=False)
    python = env / "bin" / "python"
    lend_packages(python)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
    ]
    how = {
        "wheel": [str(checkout)],
        "strict": ["--config-settings", "editable_mode=strict", "-e", str(checkout)],
        "lenient": ["-e", str(checkout)],
    }
    if way != "uninstalled":
        subprocess.run([*pip, *how[way]], check=True, cwd=tmp_path)
    told = trained("--epochs", 1, "--batch", 256, "--out", tmp_path / "out", python=python, cwd=checkout)
    assert told.splitlines()[-1].startswith("test accuracy: ")
    if way != "uninstalled":  # and away from the checkout, where only the installed one can be found
        look = (
            "from importlib.util import find_spec; from tinyadept.data import digits; digits.load()\n"
            f"assert all(map(find_spec, {listed_packages()}))"
        )
        subprocess.run([str(python), "-c", look], check=True, cwd=tmp_path)


def lend_packages(python: Path) -> None:
    """Let an environment import what this one has installed, except tinyadept, without a download."""
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = Path(
        subprocess.run([str(python), "-c", find], check=True, capture_output=True, text=True).stdout.strip()
    )
    source = Path(np.__file__).parents[1]
    for entry in source.iterdir():
        if "tinyadept" not in entry.name and not entry.name.endswith(".pth"):
            (target / entry.name).symlink_to(entry)
