'use strict';

const { CallCancelled } = require('./failure.js');
const { CallStream } = require('./stream.js');

/** One CALL, from its arrival to its answer. */
class Call {
  isRunning = false;
  /** Why it was cancelled; null when it was not. */
  reason = null;
  #headerBytes;
  #header = null;
  #event;
  #arrivedMs = performance.now();
  #controller = null;
  #stream = null;
  #onCancel = null;

  constructor(connection, id, headerBytes, event) {
    this.connection = connection;
    this.id = id;
    this.#headerBytes = headerBytes;
    this.#event = event;
    this.eventBytes = event.length;
  }

  /** Parsed when it is asked for: most handlers never do. */
  header() {
    if (this.#header === null) {
      try {
        this.#header = JSON.parse(this.#headerBytes.toString()) ?? {};
      } catch {
        this.#header = {};
      }
    }
    return this.#header;
  }

  /** Once: what came is let go of. */
  takeEvent() {
    const event = this.#event;
    this.#event = null;
    return JSON.parse(event.toString());
  }

  /** When it ends, as `performance.now()` counts; null without a bound. */
  endMs() {
    const { remainingMs, atMs } = this.header();
    if (!(remainingMs > 0)) return null;
    if (typeof atMs !== 'number') return this.#arrivedMs + remainingMs;
    return performance.now() + remainingMs - (Number(process.hrtime.bigint()) / 1e6 - atMs);
  }

  signal() {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.reason !== null) this.#controller.abort(new CallCancelled(this.reason));
    }
    return this.#controller.signal;
  }

  /** null when its caller takes no stream. */
  stream() {
    const { stream, credit } = this.header();
    if (this.#stream === null && stream === true) this.#stream = new CallStream(this, credit ?? 0);
    return this.#stream;
  }

  /** The stream when somebody has asked for it. */
  openedStream() {
    return this.#stream;
  }

  cancel(reason) {
    if (this.reason !== null) return;
    this.reason = reason;
    const cancelled = new CallCancelled(reason);
    this.#controller?.abort(cancelled);
    this.#stream?.close(cancelled);
    this.#onCancel?.();
  }

  onCancel(listener) {
    this.#onCancel = listener;
  }
}

module.exports = { Call };
