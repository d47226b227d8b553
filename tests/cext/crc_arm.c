/* Prints "<implementation> <crc>" of stdin for every CRC-32C that this processor can run. */
#include "crc32c.h"

#include <stdio.h>

static uint8_t data[1 << 20];

int main(void) {
    crc_implementation found[CRC_IMPLEMENTATIONS_MAX];
    int count = crc_setup(found);
    size_t size = fread(data, 1, sizeof data, stdin);
    for (int i = 0; i < count; i++) {
        uint32_t crc = found[i].run(0, data, size / 3); /* in two parts: pieces can be chained */
        printf("%s %u\n", found[i].name, found[i].run(crc, data + size / 3, size - size / 3));
    }
    return (int)crc32_sliced(0, data, 0);
}
