"""Twenty open pages of a console, until standard input ends: python open_pages.py HOST:PORT

Each loads again every REFRESH_S seconds as the live page does, and they do not begin together.
"""

import http.client
import sys
import threading

PAGES = ("/live", "/health", "/topics", "/messages?topic=load", "/groups")
COUNT, REFRESH_S = 20, 5.0


def keep_open(address: str, number: int, ended: threading.Event) -> None:
    wait_s = REFRESH_S * number / COUNT
    while not ended.wait(wait_s):
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("GET", PAGES[number % len(PAGES)])
        answer = connection.getresponse()
        answer.read()
        connection.close()
        assert answer.status == 200, answer.status
        print("page", flush=True)
        wait_s = REFRESH_S


def main(address: str) -> None:
    ended = threading.Event()
    threads = [
        threading.Thread(target=keep_open, args=(address, number, ended)) for number in range(COUNT)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    ended.set()


if __name__ == "__main__":
    main(sys.argv[1])
