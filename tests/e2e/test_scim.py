"""SCIM with a compliance checker that is not ours: every check of it against a running gateway."""

import json
import os
import subprocess

import httpx2
from own import gateway
from scim2_client.engines.httpx2 import SyncSCIMClient
from scim2_tester import Status, check_server

CONFIG = """
[identity.corp]
issuer = "https://id.example.com"
client_id = "portunus"
client_secret = { text = "x" }
"""


def test_the_service_complies(tmp_path):
    with gateway(tmp_path, CONFIG) as served:
        create = ["scim", "token", "create", "--identity", "corp", "--json"]
        place = ["--config", tmp_path / "gateway.toml", "--data", tmp_path]
        made = subprocess.check_output([os.environ["GATEWAY_BINARY"], *create, *place])
        headers = {"Authorization": f"Bearer {json.loads(made)['token']}"}
        with httpx2.Client(base_url=f"{served.url}/scim/v2", headers=headers) as http:
            results = check_server(SyncSCIMClient(http))
    bad = [
        f"{one.title} {one.resource_type}: {one.reason}"
        for one in results
        if one.status in (Status.ERROR, Status.CRITICAL)
    ]
    assert not bad, "\n".join(bad)
    assert len(results) > 40
