'use strict';

const { log } = require('./failure.js');
const { FrameReader, ProtocolError } = require('./protocol.js');

/** A control plane that takes nothing for so long has lost its connection. */
const TAKE_NOTHING_MS = 30_000;
const MAX_QUEUED_CALLS = 512;
const MAX_QUEUED_BYTES = 8 * 1024 * 1024;
/** CANCELs that came before their CALL was read. */
const MAX_EARLY_CANCELS = 4096;

/** One connection of a control plane. */
class Connection {
  /** Set by the handshake. */
  client = '';
  role = null;
  /** Call id → call, of those that wait or run. */
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

  /** `owner`: `receive(connection, frame)`, which may throw ProtocolError, and `ended(connection)`. */
  constructor(socket, owner) {
    this.#socket = socket;
    this.#owner = owner;
    // Without effect on a unix socket.
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

  /** Resolves when all that was sent is out of the process. */
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

  /** Says a last word and closes. */
  refuse(frame) {
    this.#socket.end(frame);
    this.#socket.destroySoon();
    this.isEnded = true;
  }

  /** A call waits: of a connection with many of them no more is read. */
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
    // Not here: the frames that were received with the last one would start calls out of order.
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

  /** The reason of a CANCEL that overtook this call; undefined when none did. */
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
