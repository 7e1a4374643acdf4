'use strict';

const { CallContext } = require('./context.js');
const { Durable } = require('./durable.js');
const { loadEntry } = require('./entry.js');
const { CallCancelled, Failure, log, logError, stopping, textOf } = require('./failure.js');
const { CODE, FRAME, errorFrame, messageFrame } = require('./protocol.js');

const MAX_CONCURRENCY = 1000;
const MAX_RESULT_BYTES = 7 * 1024 * 1024 - 9;
/** Minimum for the grace of a STOP, so that with a grace of 0 the instance can still send STOPPED. */
const LEAST_GRACE_MS = 100;
/** Time limit for sending the last answers. */
const FLUSH_MS = 1000;

/** Ends the process even if the user's code has replaced `process.exit`. */
const exit = process.exit.bind(process);

/** Runs the phases of an instance: INIT, the initializer, pre_stop, the end. */
class Lifecycle {
  /** State of the instance: `new`, `initializing`, `ready`, `failed` or `stopping`. */
  state = 'new';
  /** Reason why the code could not be loaded; set in state `failed`. */
  failure = null;
  /** The state of a durable agent; null for another. */
  durable = null;
  #calls;
  #facts = null;
  #preStop = null;
  /** The frame that answers every INIT; null until the outcome is known. */
  #initAnswer = null;
  #waiting = [];
  #stoppers = new Set();
  /** Aborts the initializer when the instance stops. */
  #initEnd = new AbortController();
  #initialized = Promise.resolve();

  constructor(calls) {
    this.#calls = calls;
  }

  /** Returns the failure that refuses a new call; null if the call is accepted. */
  refusal() {
    if (this.state === 'new') return new Failure(CODE.PROTOCOL, 'a CALL came before INIT');
    if (this.state === 'failed') return this.failure;
    return this.state === 'stopping' ? stopping() : null;
  }

  /** Removes a closed connection from those that wait for STOPPED. */
  forget(connection) {
    this.#stoppers.delete(connection);
  }

  receiveInit(connection, init) {
    const { concurrency, maxResultBytes } = init;
    if (!isWithin(concurrency, MAX_CONCURRENCY) || !isWithin(maxResultBytes, MAX_RESULT_BYTES)) {
      const needs = `concurrency, 1 to ${MAX_CONCURRENCY}, and maxResultBytes, 1 to ${MAX_RESULT_BYTES}`;
      connection.send(errorFrame(0, new Failure(CODE.PROTOCOL, `INIT needs ${needs}`)));
    } else if (this.#initAnswer !== null) {
      connection.send(this.#initAnswer);
    } else if (this.state === 'stopping') {
      connection.send(errorFrame(0, stopping()));
    } else {
      this.#waiting.push(connection);
      if (this.state !== 'new') return;
      this.state = 'initializing';
      this.#facts = { init, state: {}, durable: null };
      this.#initialized = this.#initialize(init);
    }
  }

  async #initialize(init) {
    let why = null;
    let handler;
    let entries = null;
    const timing = {};
    try {
      const startedMs = performance.now();
      if (init.durable) this.#openState(init.durable);
      handler = await this.#load(init);
      entries = await loadEntries(init);
      const loadedMs = performance.now();
      await this.#runInitializer(init);
      this.durable?.begin();
      timing.loadMicros = Math.round((loadedMs - startedMs) * 1000);
      timing.initMicros = Math.round((performance.now() - loadedMs) * 1000);
    } catch (error) {
      why = error instanceof Failure ? error : new Failure(CODE.LOAD, textOf(error));
      log(why.message);
    }
    this.#initAnswer = why === null ? messageFrame(FRAME.INIT_OK, 0, timing) : errorFrame(0, why);
    const isStopping = this.state === 'stopping';
    if (!isStopping) this.state = why === null ? 'ready' : 'failed';
    this.failure = why;
    for (const connection of this.#waiting.splice(0)) connection.send(this.#initAnswer);
    if (isStopping) return;
    if (why === null) this.#calls.open(this.#facts, handler, entries);
    else this.#calls.refuseWaiting(why);
  }

  #openState(message) {
    this.durable = this.#facts.durable = new Durable(message);
    for (const connection of this.#waiting) this.durable.connected(connection);
  }

  async #load(init) {
    if (!init.handler) throw new Failure(CODE.INITIALIZER, 'empty user call code');
    const { codePath = '', handler, initTimeoutMs } = init;
    const late = `cannot load the handler ${handler}: it did not load within ${seconds(initTimeoutMs)}`;
    return await within(loadEntry(handler, codePath, 'handler'), initTimeoutMs, new Failure(CODE.LOAD, late));
  }

  async #runInitializer(init) {
    const { initializer, preStop, codePath, initTimeoutMs } = init;
    const late = new Failure(CODE.INITIALIZER_TIMEOUT, `initializer timed out after ${seconds(initTimeoutMs)}`);
    if (preStop) {
      // An instance serves calls without its pre_stop, so a failure is reported when pre_stop would run.
      this.#preStop = await loadEntry(preStop, codePath, 'pre_stop').catch(error => () => Promise.reject(error));
    }
    if (!initializer) return;
    const hook = await within(loadEntry(initializer, codePath, 'initializer'), initTimeoutMs, late);
    const endMs = initTimeoutMs > 0 ? performance.now() + initTimeoutMs : null;
    const signal = this.#initEnd.signal;
    try {
      const running = Promise.resolve(hook(new CallContext(this.#facts, null, endMs, signal)));
      await within(running, initTimeoutMs, late, signal);
    } catch (error) {
      if (error === late) {
        this.#initEnd.abort(new CallCancelled('timeout'));
        throw late;
      }
      logError('initializer failed', error);
      throw new Failure(CODE.INITIALIZER, `initializer failed: ${textOf(error)}`);
    }
  }

  /**
   * Stops the instance within its grace; has an effect once. `connection` then gets STOPPED; null: no
   * connection does.
   */
  stop(connection, graceMs) {
    if (connection !== null) this.#stoppers.add(connection);
    const before = this.state;
    if (before === 'stopping') return;
    this.state = 'stopping';
    this.#windUp(before, graceMs).then(failure => this.#end(failure));
  }

  /** Ends all calls and runs pre_stop. Returns the failure, or null if everything ended well. */
  async #windUp(before, graceMs) {
    const endMs = performance.now() + Math.max(graceMs, LEAST_GRACE_MS);
    const late = what => new Failure(CODE.PRE_STOP, `${what} timed out after ${seconds(graceMs)}`);
    const leftMs = () => Math.max(1, endMs - performance.now());
    try {
      this.#calls.refuseWaiting(stopping());
      this.#calls.cancelRunning();
      this.#initEnd.abort(new CallCancelled('stop'));
      await within(this.#initialized, leftMs(), late('stopping the initializer'));
      await within(this.#calls.idle(), leftMs(), late('stopping the running calls'));
      if (before !== 'ready' || this.#preStop === null) return null;
      const end = new AbortController();
      const failure = late('pre_stop');
      const context = new CallContext(this.#facts, null, endMs, end.signal);
      await within(Promise.resolve(this.#preStop(context)), leftMs(), failure).catch(error => {
        if (error === failure) end.abort(new CallCancelled('timeout'));
        throw error;
      });
      return null;
    } catch (error) {
      if (error instanceof Failure && error.code === CODE.PRE_STOP) {
        log(`rookery: ${error.message}`);
        return error;
      }
      if (!(error instanceof Failure)) logError('pre_stop failed', error);
      return new Failure(CODE.PRE_STOP, `pre_stop failed: ${error instanceof Failure ? error.message : textOf(error)}`);
    }
  }

  /** Sends STOPPED and ends the process with exit code 0. */
  async #end(failure) {
    const stopped = failure === null ? {} : { error: { code: failure.code, message: failure.message } };
    setTimeout(() => exit(0), FLUSH_MS);
    await Promise.all(
      [...this.#stoppers].map(connection => {
        connection.send(messageFrame(FRAME.STOPPED, 0, stopped));
        return connection.flushed();
      }),
    );
    exit(0);
  }
}

/** Returns the functions that run instead of the handler; null: there are none. Throws a Failure. */
async function loadEntries({ durable, codePath = '', initTimeoutMs }) {
  const { alarm, sleep } = durable?.entries ?? {};
  if (!alarm && !sleep) return null;
  const entries = Object.create(null);
  const load = async (name, kind) => {
    const late = `cannot load the ${kind} ${name}: it did not load within ${seconds(initTimeoutMs)}`;
    return await within(loadEntry(name, codePath, kind), initTimeoutMs, new Failure(CODE.LOAD, late));
  };
  if (alarm) entries.alarm = await load(alarm, 'alarm entry');
  if (sleep) {
    const hook = await load(sleep, 'sleep entry');
    entries.sleep = (_event, context) => hook(context);
  }
  return entries;
}

function isWithin(value, most) {
  return Number.isInteger(value) && value >= 1 && value <= most;
}

/**
 * Resolves like `promise`. Rejects with `late` after `timeoutMs` (0: never), or with the reason of `signal`
 * when that is aborted.
 */
function within(promise, timeoutMs, late, signal) {
  return new Promise((resolve, reject) => {
    const timer = timeoutMs > 0 ? setTimeout(() => reject(late), timeoutMs) : undefined;
    const stop = () => reject(signal.reason);
    signal?.addEventListener('abort', stop, { once: true });
    promise.then(resolve, reject).finally(() => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', stop);
    });
  });
}

function seconds(ms) {
  return `${ms / 1000} s`;
}

module.exports = { Lifecycle };
