"""Twenty open pages of a console: python open_pages.py HOST:PORT

For each line on standard input it loads all pages once, spread over REFRESH_S seconds, as twenty
browsers do whose pages load again that often; then it prints how many it loaded.
"""

import http.client
import sys
import threading
import time

PAGES = ("/live", "/health", "/topics", "/messages?topic=load", "/groups")
COUNT, REFRESH_S = 20, 5.0


def load(address: str, number: int, loaded: list[int]) -> None:
    time.sleep(REFRESH_S * number / COUNT)
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", PAGES[number % len(PAGES)])
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status == 200:
        loaded.append(number)


def main(address: str) -> None:
    for _ in sys.stdin:
        loaded: list[int] = []
        threads = [
            threading.Thread(target=load, args=(address, number, loaded)) for number in range(COUNT)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len(loaded), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
