'use strict';

const { CallCancelled } = require('./failure.js');
const { CallStream } = require('./stream.js');

/** A CALL, from its arrival to its answer. */
class Call {
  isRunning = false;
  /** The spans that the call's code has made; null: none. */
  spans = null;
  /** Reason of the cancellation; null while the call is not cancelled. */
  reason = null;
  #headerBytes;
  #header = null;
  #event;
  #arrivedMs = performance.now();
  #controller = null;
  #stream = null;
  #onCancel = null;
  #view = null;

  constructor(connection, id, headerBytes, event) {
    this.connection = connection;
    this.id = id;
    this.#headerBytes = headerBytes;
    this.#event = event;
    this.eventBytes = event.length;
  }

  /**
   * Returns the fields of the header; `{}` if it is not JSON. Parses on first use: most handlers never read
   * them.
   */
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

  /** Returns the parsed event. May be called once, because the received bytes are released. */
  takeEvent() {
    const event = this.#event;
    this.#event = null;
    return JSON.parse(event.toString());
  }

  /**
   * Returns the time at which the call ends, in milliseconds of `performance.now()`; null without a limit.
   */
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

  /** Returns the call's stream, or null when the caller did not ask for one. Creates it on first use. */
  stream() {
    const { stream, credit } = this.header();
    if (this.#stream === null && stream === true) this.#stream = new CallStream(this, credit ?? 0);
    return this.#stream;
  }

  /** Returns this call's view of the state of a durable agent. */
  viewOf(durable) {
    this.#view ??= durable.view();
    return this.#view;
  }

  /** Takes the state away from code that may still run although the call was answered. */
  detachState() {
    this.#view?.detach();
  }

  /** Returns the stream if it has been created, otherwise null. */
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
