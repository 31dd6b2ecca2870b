"""Writes what each journey of an agent came to, for the table (see table.py)."""

import json
import os

import pytest

RESULTS = []


def pytest_configure(config):
    config.addinivalue_line("markers", "journey(name): a column of the table of agents")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    cell = dict(item.user_properties).get("cell")
    ended = report.when == "call" or (report.when == "setup" and not report.passed)
    if cell and ended:
        agent, journey, model = cell
        result = "not offered" if report.skipped else "pass" if report.passed else "fail"
        RESULTS.append({"agent": agent, "journey": journey, "model": model, "result": result})
    return report


def pytest_sessionfinish():
    if "AGENTS_CELLS" in os.environ:
        with open(os.environ["AGENTS_CELLS"], "w") as file:
            json.dump(RESULTS, file)
