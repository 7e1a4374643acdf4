'use strict';

const { CallCancelled } = require('./failure.js');
const { FRAME, MAX_FRAME_BYTES, OVERHEAD_BYTES, frame } = require('./protocol.js');
const { toJson } = require('./values.js');

const MAX_CHUNK_BYTES = MAX_FRAME_BYTES - OVERHEAD_BYTES;

/** CHUNK frames of one call, under the credit of their reader. */
class CallStream {
  #call;
  #credit;
  #closed = false;
  /** Writes that wait for credit, the oldest first. */
  #waiting = [];
  #onFlushed = null;

  constructor(call, credit) {
    this.#call = call;
    this.#credit = credit;
    /** What the user's code gets of it. */
    this.writer = Object.freeze({ write: event => this.write(event) });
  }

  /** Resolves when the event is on its way: a text as it is, another value as JSON; null and undefined are nothing. */
  write(event) {
    if (event === null || event === undefined) return Promise.resolve();
    let data;
    try {
      data = Buffer.from(typeof event === 'string' ? event : toJson(event));
      if (data.length > MAX_CHUNK_BYTES) {
        throw new RangeError(`a stream event of ${data.length} bytes exceeds the limit of ${MAX_CHUNK_BYTES}`);
      }
    } catch (error) {
      return Promise.reject(error);
    }
    const over = this.#whyOver();
    if (over !== null) return quietly(Promise.reject(over));
    if (this.#waiting.length === 0 && this.#credit > 0) {
      this.#send(data);
      return Promise.resolve();
    }
    return quietly(new Promise((resolve, reject) => this.#waiting.push({ data, resolve, reject })));
  }

  grant(bytes) {
    this.#credit += bytes;
    while (this.#waiting.length > 0 && this.#credit > 0) {
      const { data, resolve } = this.#waiting.shift();
      this.#send(data);
      resolve();
    }
    if (this.#waiting.length === 0) this.#onFlushed?.resolve();
  }

  /** Whether all that was written is on its way. */
  isFlushed() {
    return this.#waiting.length === 0;
  }

  /** Resolves when it is. */
  flush() {
    return new Promise((resolve, reject) => {
      this.#onFlushed = { resolve, reject };
    });
  }

  /** No event follows; writes that wait fail. */
  close(error = ended()) {
    this.#closed = true;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    this.#onFlushed?.reject(error);
  }

  /** Why no event can follow; null when one can. */
  #whyOver() {
    if (this.#call.reason !== null) return new CallCancelled(this.#call.reason);
    return this.#closed ? ended() : null;
  }

  /** One event may overdraw the credit; an empty one costs a byte. */
  #send(data) {
    this.#credit -= Math.max(1, data.length);
    this.#call.connection.send(frame(FRAME.CHUNK, this.#call.id, data));
  }
}

/** Who does not wait for a write learns of the end of its call by the signal, and has no rejection to handle: that would end the instance. */
function quietly(written) {
  written.catch(() => undefined);
  return written;
}

function ended() {
  return new Error('the stream has ended: its call was answered');
}

module.exports = { CallStream };
