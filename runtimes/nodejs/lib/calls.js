'use strict';

const { Call } = require('./call.js');
const { Execution } = require('./execution.js');
const { cancelledFailure } = require('./failure.js');
const { ProtocolError, errorFrame } = require('./protocol.js');

/**
 * Queues and runs the calls of this instance: at most `concurrency` at once, in order of arrival over all
 * connections.
 */
class Calls {
  /** Set by the Server, which creates both objects. */
  lifecycle = null;
  #queue = new Set();
  #running = new Set();
  #concurrency = 0;
  #execution = null;
  #isStarting = false;
  #onIdle = null;

  counts() {
    return { running: this.#running.size, queued: this.#queue.size };
  }

  receive(connection, callId, payload) {
    const eventAt = payload.length < 2 ? 3 : 2 + payload.readUInt16BE(0);
    if (eventAt > payload.length) throw new ProtocolError('a CALL is shorter than its header');
    if (callId === 0 || connection.calls.has(callId)) {
      throw new ProtocolError('a CALL has a call id that is 0 or in use');
    }
    const cancelled = connection.takeEarlyCancel(callId);
    const refusal = cancelled === undefined ? this.lifecycle.refusal() : cancelledFailure(cancelled);
    if (refusal !== null) {
      connection.send(errorFrame(callId, refusal));
      return;
    }
    const call = new Call(connection, callId, payload.subarray(2, eventAt), payload.subarray(eventAt));
    connection.calls.set(callId, call);
    this.#queue.add(call);
    connection.enqueued(call);
    this.#startNext();
  }

  cancel(data, callId, reason) {
    const call = data.calls.get(callId);
    if (call === undefined) {
      data.cancelEarly(callId, reason);
    } else if (call.isRunning) {
      call.cancel(reason);
    } else {
      this.#drop(call, cancelledFailure(reason));
    }
  }

  credit(data, callId, bytes) {
    data.calls.get(callId)?.openedStream()?.grant(bytes);
  }

  /** Drops the waiting calls of a data connection and cancels its running calls. */
  endConnection(connection) {
    for (const call of connection.calls.values()) {
      if (call.isRunning) call.cancel('caller');
      else this.#dequeue(call);
    }
  }

  /** Starts to run calls, once the code is loaded. */
  open(facts, handler, entries) {
    this.#execution = new Execution(facts, handler, entries);
    this.#concurrency = facts.init.concurrency;
    this.#startNext();
  }

  refuseWaiting(failure) {
    for (const call of [...this.#queue]) this.#drop(call, failure);
  }

  cancelRunning() {
    for (const call of [...this.#running]) call.cancel('stop');
  }

  /** Resolves when no call runs. */
  idle() {
    if (this.#running.size === 0) return Promise.resolve();
    return new Promise(resolve => {
      this.#onIdle = resolve;
    });
  }

  /**
   * Starts waiting calls in a loop. Recursion could be deep, since plain handlers end before `run` returns.
   */
  #startNext() {
    if (this.#isStarting) return;
    this.#isStarting = true;
    while (this.#running.size < this.#concurrency && this.#queue.size > 0 && this.lifecycle.state === 'ready') {
      const [call] = this.#queue;
      this.#queue.delete(call);
      call.connection.dequeued(call);
      call.isRunning = true;
      this.#running.add(call);
      this.#execution.run(call, () => this.#ended(call));
    }
    this.#isStarting = false;
  }

  #ended(call) {
    this.#running.delete(call);
    call.connection.calls.delete(call.id);
    if (this.#running.size === 0) this.#onIdle?.();
    this.#startNext();
  }

  #drop(call, failure) {
    this.#dequeue(call);
    call.connection.send(errorFrame(call.id, failure));
  }

  #dequeue(call) {
    this.#queue.delete(call);
    call.connection.calls.delete(call.id);
    call.connection.dequeued(call);
  }
}

module.exports = { Calls };
