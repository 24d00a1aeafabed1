"""Certificates as an operator makes them with openssl."""

import subprocess
from pathlib import Path

HOSTS = "subjectAltName=IP:127.0.0.1,IP:127.0.0.2,DNS:localhost"


def certificate(folder: Path, name: str) -> Path:
    """A certificate that is its own authority, `NAME.crt`; its key is `NAME.key`."""
    made = folder / f"{name}.crt"
    key = ("-newkey", "rsa:2048", "-nodes", "-keyout", str(folder / f"{name}.key"))
    about = ("-subj", f"/CN={name}", "-addext", HOSTS, "-days", "2")
    command = ["openssl", "req", "-x509", *key, "-out", str(made), *about]
    subprocess.run(command, check=True, capture_output=True)
    return made


def tls_variables(own: Path, authority: Path) -> dict[str, str]:
    """What Ray reads from the environment."""
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(own),
        "RAY_TLS_SERVER_KEY": str(own.with_suffix(".key")),
        "RAY_TLS_CA_CERT": str(authority),
    }


__all__ = ["certificate", "tls_variables"]
