// The part of bignum 0.6.2 that prozess 0.7.0 and buffermaker 1.0.0 use, over BigInt.
class Big {
  constructor(value) { this.value = BigInt(value instanceof Big ? value.value : value); }
  add(other) { return new Big(this.value + bignum(other).value); }
  eq(other) { return this.value === bignum(other).value; }
  toString() { return this.value.toString(); }
  toBuffer(options) {
    const bytes = Buffer.alloc(options.size);
    bytes.writeBigUInt64BE(BigInt.asUintN(64, this.value));
    return bytes;
  }
}

function bignum(value) { return new Big(value); }

bignum.fromBuffer = (bytes) => new Big(bytes.readBigUInt64BE(0));
module.exports = bignum;
