"""A cluster with Ray's TLS and a token, started by hand as docs/clusters.md says."""

import time
from pathlib import Path

import pytest

from tests.certificates import certificate, tls_variables
from tests.integration.nodes_by_hand import ByHand, free_port

pytestmark = pytest.mark.timeout(200)

ADDRESS = "127.0.0.2"
AT_ONCE_S = 30.0
JOB = """
streams:
  - id: short
    input: {type: memory, codec: json, messages: ['{"a": 1}', '{"a": 2}']}
    pipeline: {processors: []}
    output: {type: stdout}
"""


def test_a_job_runs_with_tls_and_whoever_is_without_is_told_so(tmp_path: Path) -> None:
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    file = tmp_path / "short.yaml"
    file.write_text(JOB)
    cluster = ByHand(ADDRESS, free_port(ADDRESS), variables=tls_variables(own, own))
    try:
        cluster.head()
        done = cluster.run(file, cluster.address, RAY_AUTH_MODE="token")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == ['{"a":1}', '{"a":2}']

        begun_s = time.monotonic()
        plain = cluster.run(file, cluster.address, RAY_AUTH_MODE="token", RAY_USE_TLS="0")
        foreign = cluster.run(file, cluster.address, **tls_variables(other, other))
        for refused in (plain, foreign):
            assert (refused.returncode, refused.stdout) == (3, "")
            assert "RAY_TLS_CA_CERT must be set here as on the nodes" in refused.stderr
        assert time.monotonic() - begun_s < AT_ONCE_S  # Ray itself tries for many minutes
    finally:
        cluster.close()
