'use strict';

const { cancelledFailure, Failure, handlerFailure, logError, textOf } = require('./failure.js');
const { CODE, errorFrame, resultFrame } = require('./protocol.js');
const { assertSize, toJson } = require('./values.js');
const { CallContext } = require('./context.js');

/**
 * Time that a cancelled call has to end by itself. Then it is answered, and the result of its code is
 * ignored.
 */
const CANCELLED_MS = 1000;

/** Runs calls of a handler, from the event to the answer. */
class Execution {
  #facts;
  #handler;
  #entries;
  #maxBytes;

  /** `entries`: functions that run instead of the handler, by the `entry` of a call; null: there are none. */
  constructor(facts, handler, entries) {
    this.#facts = facts;
    this.#handler = handler;
    this.#entries = entries;
    this.#maxBytes = facts.init.maxResultBytes;
  }

  /** Answers the call and then calls `done`. For a plain function this happens before `run` returns. */
  run(call, done) {
    const startedMs = performance.now();
    let isOver = false;
    let timer;
    const settle = (failure, value) => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      this.#answer(call, startedMs, failure, value);
      done();
    };
    const fail = error => settle(this.#failureOf(call, error));
    call.onCancel(() => {
      timer = setTimeout(() => settle(cancelledFailure(call.reason)), CANCELLED_MS);
    });
    try {
      const run = this.#entries === null ? this.#handler : (this.#entries[call.header().entry] ?? this.#handler);
      const value = run(eventOf(call), new CallContext(this.#facts, call, null));
      if (typeof value?.then === 'function')
        Promise.resolve(value).then(value => this.#end(call, value, settle, fail), fail);
      else this.#end(call, value, settle, fail);
    } catch (error) {
      fail(error);
    }
  }

  /** Completes a call whose handler has returned. A returned generator still has to run. */
  #end(call, value, settle, fail) {
    try {
      if (isGenerator(value)) {
        this.#sequence(call, value).then(result => settle(null, result), fail);
        return;
      }
      const stream = call.openedStream();
      if (stream === null || stream.isFlushed()) settle(null, value);
      else stream.flush().then(() => settle(null, value), fail);
    } catch (error) {
      fail(error);
    }
  }

  /**
   * Runs a generator: sends its values to the stream if the caller asked for one, else collects them in an
   * array.
   */
  async #sequence(call, values) {
    const stream = call.stream();
    const collected = [];
    let bytes = 2;
    try {
      for (;;) {
        if (call.reason !== null) throw call.signal().reason;
        const { done, value } = await values.next();
        if (done) return stream === null ? collected : value;
        if (stream !== null) {
          await stream.write(value);
          continue;
        }
        const json = toJson(value);
        bytes += Buffer.byteLength(json) + (collected.length > 0 ? 1 : 0);
        assertSize(bytes, this.#maxBytes);
        collected.push(value);
      }
    } catch (error) {
      // Runs the generator's `finally` blocks. The generator may not have reached its next `yield`.
      Promise.resolve(values.return?.()).catch(late => logError('a generator failed when it was ended', late));
      throw error;
    }
  }

  #answer(call, startedMs, failure, value) {
    call.openedStream()?.close();
    let json = '';
    let bytes = 0;
    let why = failure;
    if (why === null) {
      try {
        json = toJson(value);
        bytes = Buffer.byteLength(json);
        assertSize(bytes, this.#maxBytes);
      } catch (error) {
        why = error instanceof Failure ? error : handlerFailure(textOf(error));
      }
    }
    // Only code that caught an interrupt and continued may still return a value.
    if (call.reason !== null && !(call.reason === 'interrupt' && why === null)) why = cancelledFailure(call.reason);
    if (this.#facts.durable !== null) why = this.#saveState(call, why);
    if (call.spans !== null && call.connection.takesSpans) call.connection.send(call.spans.frame(call.id, startedMs));
    const micros = Math.round((performance.now() - startedMs) * 1000);
    call.connection.send(why === null ? resultFrame(call.id, micros, json, bytes) : errorFrame(call.id, why, micros));
  }

  /** Sends the changed state of a successful call; undoes that of another. Returns why the call failed. */
  #saveState(call, failure) {
    const { durable } = this.#facts;
    let why = failure;
    if (why === null) {
      try {
        const frame = durable.saveOf(call.id);
        if (frame !== null) call.connection.send(frame);
        return null;
      } catch (error) {
        why = error instanceof Failure ? error : handlerFailure(textOf(error));
      }
    }
    if (call.reason !== null) call.detachState();
    durable.rollBack(call.reason !== null);
    return why;
  }

  #failureOf(call, error) {
    if (error instanceof Failure) return error;
    // The error of a cancelled call usually contains nothing new.
    if (call.reason === null) logError(`call failed, trace id ${call.header().traceId || '-'}`, error);
    return handlerFailure(textOf(error));
  }
}

function eventOf(call) {
  try {
    return call.takeEvent();
  } catch (error) {
    throw new Failure(CODE.NOT_JSON, `the event cannot be read: ${textOf(error)}`);
  }
}

function isGenerator(value) {
  return (
    typeof value?.next === 'function' &&
    (typeof value[Symbol.asyncIterator] === 'function' || typeof value[Symbol.iterator] === 'function')
  );
}

module.exports = { Execution };
