"""A gateway that is killed and started again on the same address and data."""

import os
import subprocess

import own


class RestartedGateway:
    """Has the configuration of the gateway under test, which knows the simulated upstreams."""

    def __init__(self, folder):
        self.folder = folder
        self.binary = os.environ["GATEWAY_BINARY"]
        self.url = f"http://127.0.0.1:{own.free_port()}"
        self.key = own.create_key(folder)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.process.terminate()
        assert self.process.wait(30) == 0

    def start(self):
        config = os.environ["GATEWAY_CONFIG"]
        listen = self.url.removeprefix("http://")
        serve = [self.binary, "serve", "--config", config, "--listen", listen, "--data", self.folder]
        log = self.folder / "log"
        with open(log, "a") as file:
            self.process = subprocess.Popen(
                serve, stdout=file, stderr=file, env=own.environment()
            )
        own.ready(self.url, self.process, log)

    def restart(self):
        """Ends the process without a chance to save anything, and starts it again."""
        self.process.kill()
        self.process.wait(30)
        self.start()
