"""Detached signatures by ssh-keygen, where it is installed."""

import shutil
import subprocess
from pathlib import Path

from residuum.errors import InputError

NAMESPACE = "residuum-pack"
PATIENCE = 300.0  # seconds; somebody may have to type a passphrase


def _ssh_keygen(*arguments: str, content: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise InputError("expected ssh-keygen for signatures, it is not installed; leave --sign and --signers out")
    try:
        given = [program, "-Y", *arguments]
        return subprocess.run(given, input=content, capture_output=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise InputError(f"waited {PATIENCE:.0f} s for ssh-keygen; does it ask for a passphrase somewhere?") from None


def sign_file(file: Path, key: Path) -> Path:
    """Return the signature of a file, which is written beside it with the suffix .sig."""
    signature = file.with_name(f"{file.name}.sig")
    signature.unlink(missing_ok=True)
    done = _ssh_keygen("sign", "-f", str(key), "-n", NAMESPACE, str(file))
    if done.returncode or not signature.is_file():
        raise InputError(f"ssh-keygen cannot sign with {key}: {done.stderr.decode(errors='replace').strip()}")
    return signature


def signature_problem(file: Path, signers: Path) -> list[str]:
    """Return why the signature beside a file is not one of the allowed signers', or nothing."""
    signature = file.with_name(f"{file.name}.sig")
    if not signature.is_file():
        return [f"{signature}: there is no signature"]
    found = _ssh_keygen("find-principals", "-s", str(signature), "-f", str(signers))
    name = found.stdout.decode(errors="replace").strip().partition("\n")[0]
    if found.returncode or not name:
        return [f"{signature}: made by none of the signers in {signers}"]
    arguments = ("verify", "-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", str(signature))
    done = _ssh_keygen(*arguments, content=file.read_bytes())
    return [f"{signature}: the signature is not one of this file"] if done.returncode else []
