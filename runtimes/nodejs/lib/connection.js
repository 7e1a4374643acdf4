'use strict';

const { log } = require('./failure.js');
const { FrameReader, ProtocolError } = require('./protocol.js');

/** Time after which a control plane that reads nothing loses its connection. */
const TAKE_NOTHING_MS = 30_000;
const MAX_QUEUED_CALLS = 512;
const MAX_QUEUED_BYTES = 8 * 1024 * 1024;
/** Limit for stored CANCELs that arrived before their CALL was read. */
const MAX_EARLY_CANCELS = 4096;

/** A connection of a control plane. */
class Connection {
  /** Id of the client. The handshake sets `client` and `role`. */
  client = '';
  role = null;
  /** True if the client accepts SPANS. */
  takesSpans = false;
  /** The waiting and running calls by call id. */
  calls = new Map();
  isEnded = false;
  isPaused = false;
  #socket;
  #reader = new FrameReader();
  #owner;
  #queuedCalls = 0;
  #queuedBytes = 0;
  #earlyCancels = new Map();
  #takingTimer = null;
  #hasTold = false;

  /**
   * `owner` has the methods `receive(connection, frame)`, which may throw ProtocolError, and
   * `ended(connection)`.
   */
  constructor(socket, owner) {
    this.#socket = socket;
    this.#owner = owner;
    // Has no effect on a unix socket.
    socket.setNoDelay(true);
    socket.on('data', chunk => this.#receive(chunk));
    socket.on('error', () => undefined);
    socket.on('close', () => this.#end());
    socket.on('drain', () => this.#stopTimer());
  }

  send(frame) {
    if (this.isEnded || this.#socket.write(frame) || this.#takingTimer !== null) return;
    this.#takingTimer = setTimeout(() => this.close(), TAKE_NOTHING_MS);
    this.#takingTimer.unref();
  }

  /** Resolves when the kernel has accepted everything that was sent. */
  flushed() {
    return new Promise(resolve => {
      if (this.isEnded) resolve();
      else this.#socket.write('', () => resolve());
      this.#socket.once('close', resolve);
    });
  }

  close() {
    this.#socket.destroy();
    this.#end();
  }

  /** Sends a last frame and closes the connection. */
  refuse(frame) {
    this.#socket.end(frame);
    this.#socket.destroySoon();
    this.isEnded = true;
  }

  /** Counts a waiting call. Pauses reading when too many calls of the connection wait. */
  enqueued(call) {
    this.#queuedCalls++;
    this.#queuedBytes += call.eventBytes;
    if (this.#queuedCalls < MAX_QUEUED_CALLS && this.#queuedBytes < MAX_QUEUED_BYTES) return;
    this.isPaused = true;
    this.#socket.pause();
  }

  dequeued(call) {
    this.#queuedCalls--;
    this.#queuedBytes -= call.eventBytes;
    if (!this.isPaused) return;
    if (this.#queuedCalls > MAX_QUEUED_CALLS / 2 || this.#queuedBytes > MAX_QUEUED_BYTES / 2) return;
    this.isPaused = false;
    // Deferred, because frames that were received with the last one would otherwise start calls out of order.
    setImmediate(() => {
      if (this.isPaused || this.isEnded) return;
      this.#socket.resume();
      this.#readFrames();
    });
  }

  cancelEarly(callId, reason) {
    this.#earlyCancels.set(callId, reason);
    if (this.#earlyCancels.size > MAX_EARLY_CANCELS) this.#earlyCancels.delete(this.#earlyCancels.keys().next().value);
  }

  /**
   * Returns the reason of a CANCEL that arrived before this call, or undefined. Removes the stored CANCEL.
   */
  takeEarlyCancel(callId) {
    if (this.#earlyCancels.size === 0) return undefined;
    const reason = this.#earlyCancels.get(callId);
    this.#earlyCancels.delete(callId);
    return reason;
  }

  #receive(chunk) {
    this.#reader.push(chunk);
    this.#readFrames();
  }

  #readFrames() {
    try {
      while (!this.isEnded && !this.isPaused) {
        const frame = this.#reader.next();
        if (frame === null) return;
        this.#owner.receive(this, frame);
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      log(`rookery: a control plane broke the protocol, its connection is closed: ${error.message}`);
      this.close();
    }
  }

  #stopTimer() {
    clearTimeout(this.#takingTimer);
    this.#takingTimer = null;
  }

  #end() {
    this.#stopTimer();
    if (this.#hasTold) return;
    this.#hasTold = true;
    this.isEnded = true;
    this.#owner.ended(this);
  }
}

module.exports = { Connection };
