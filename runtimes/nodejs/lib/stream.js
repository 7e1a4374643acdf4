'use strict';

const { CallCancelled } = require('./failure.js');
const { FRAME, MAX_FRAME_BYTES, OVERHEAD_BYTES, frame } = require('./protocol.js');
const { toJson } = require('./values.js');

const MAX_CHUNK_BYTES = MAX_FRAME_BYTES - OVERHEAD_BYTES;

/** Sends CHUNK frames of a call within the credit that their reader grants. */
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
    /** The part of the stream that the user's code gets. */
    this.writer = Object.freeze({ write: event => this.write(event) });
  }

  /**
   * Resolves when the event has been sent: a string as it is, another value as JSON. null and undefined send
   * nothing.
   */
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

  /** Returns true if no write waits. */
  isFlushed() {
    return this.#waiting.length === 0;
  }

  /** Resolves when no write waits. Rejects when the stream is closed before. */
  flush() {
    return new Promise((resolve, reject) => {
      this.#onFlushed = { resolve, reject };
    });
  }

  /** Ends the stream. Writes that wait fail with `error`. */
  close(error = ended()) {
    this.#closed = true;
    for (const { reject } of this.#waiting.splice(0)) reject(error);
    this.#onFlushed?.reject(error);
  }

  /** Returns the error for further writes, or null if the stream is open. */
  #whyOver() {
    if (this.#call.reason !== null) return new CallCancelled(this.#call.reason);
    return this.#closed ? ended() : null;
  }

  /** Sends an event and subtracts its size from the credit: at least 1. One event may overdraw the credit. */
  #send(data) {
    this.#credit -= Math.max(1, data.length);
    this.#call.connection.send(frame(FRAME.CHUNK, this.#call.id, data));
  }
}

/**
 * Prevents an unhandled rejection, which would end the instance, if code does not await a write. The signal
 * also reports the end.
 */
function quietly(written) {
  written.catch(() => undefined);
  return written;
}

function ended() {
  return new Error('the stream has ended: its call was answered');
}

module.exports = { CallStream };
