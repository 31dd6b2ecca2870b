#!/usr/bin/env python3
"""Acts as a browser in which a person is signed in: opens an address, approves, follows the redirect.

Agents start it with the address. The person is in SIGN_IN_NAME and SIGN_IN_PASSWORD. Each opened address
is a line of the file SIGN_IN_LOG.
"""

import os
import sys
import urllib.request
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urlsplit


class Form(HTMLParser):
    """Fields of the form on a page: inputs with their values, and the first option of each choice."""

    def __init__(self):
        super().__init__()
        self.fields, self.choice = {}, None

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        if tag == "input" and told.get("name"):
            self.fields[told["name"]] = told.get("value", "")
        elif tag == "select":
            self.choice = told.get("name")
        elif tag == "option" and self.choice:
            self.fields.setdefault(self.choice, told.get("value", ""))


def main(address):
    with open(os.environ["SIGN_IN_LOG"], "a") as log:
        log.write(address + "\n")
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    browser = urllib.request.build_opener(cookies, urllib.request.ProxyHandler({}))

    def submit(path, fields):
        headers = {"origin": origin, "sec-fetch-site": "same-origin"}
        body = urlencode(fields).encode()
        return browser.open(urllib.request.Request(origin + path, body, headers), timeout=30)

    person = {"login": os.environ["SIGN_IN_NAME"], "password": os.environ["SIGN_IN_PASSWORD"]}
    submit("/login", person)
    page = browser.open(address, timeout=30)
    form = Form()
    form.feed(page.read().decode())
    submit(urlsplit(page.geturl()).path, form.fields | {"answer": "approve"}).read()


if __name__ == "__main__":
    main(sys.argv[1])
