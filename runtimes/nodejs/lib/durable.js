'use strict';

const { Failure, textOf } = require('./failure.js');
const { CODE, FRAME, frame, keepAwakeFrame, saveFrame } = require('./protocol.js');
const { alarmOf, checkName } = require('./alarms.js');
const { toJson } = require('./values.js');

/**
 * Up to this size every part that was ever handed out is compared after a call. Above, only the keys that the
 * call has touched.
 */
const COMPARED_CHARS = 64 * 1024;
const DEFAULT_LIMIT_BYTES = 1024 * 1024;
const CANNOT = 'context.state cannot be turned into JSON';

/**
 * The state of a durable agent. A changed state is sent in a SAVE frame directly before the RESULT of its
 * call. A call that fails sends none, and the state in memory is set back.
 */
class Durable {
  version;
  wake;
  isWaking;
  #limitBytes;
  #values;
  /** The JSON of each key, as it was saved last or as the initializer left it. */
  #base = new Map();
  #size = 0;
  /** True while the document in `#base` is not the saved one. */
  #isUnsaved = false;
  #isReady = false;
  /** Keys that were assigned, deleted, or whose object was handed out since the last save. */
  #touched = new Set();
  /** Keys whose object was ever handed out, so that other code may still change it. */
  #given = new Set();
  /** Alarms that were set or cancelled since the last save, as JSON by name. */
  #alarms = new Map();
  /** The ends of the times for which code keeps the agent awake, in milliseconds of `performance.now()`. */
  #awake = new Set();
  #waiting = [];
  /** The waits for ALARM_LIST; null: the client does not answer ALARMS. */
  #listing;
  #connections = new Set();

  constructor({ state, version = 0, maxStateBytes = DEFAULT_LIMIT_BYTES, wake = {}, listsAlarms = false }) {
    this.#listing = listsAlarms ? [] : null;
    this.version = version;
    this.wake = Object.freeze({ ...wake });
    this.isWaking = (wake.reason ?? 'created') !== 'created';
    this.#limitBytes = maxStateBytes;
    try {
      this.#values = typeof state === 'string' ? JSON.parse(state) : {};
    } catch (error) {
      throw new Failure(CODE.LOAD, `the saved state cannot be read: ${textOf(error)}`);
    }
    for (const [key, value] of Object.entries(this.#values)) this.#base.set(key, JSON.stringify(value));
    this.#size = state?.length ?? 0;
  }

  /**
   * Returns a view of the state. `detach` cuts it off: what its holder changes later stays without effect.
   */
  view() {
    const place = { values: this.#values };
    const note = (key, value) => {
      if (place.values !== this.#values || typeof key !== 'string') return;
      if ((typeof value !== 'object' && typeof value !== 'function') || value === null) return;
      this.#touched.add(key);
      this.#given.add(key);
    };
    const touch = key => {
      if (place.values === this.#values) this.#touched.add(key);
    };
    const state = new Proxy(
      {},
      {
        get: (_, key) => {
          const value = place.values[key];
          if (Object.hasOwn(place.values, key)) note(key, value);
          return value;
        },
        set: (_, key, value) => {
          touch(key);
          note(key, value);
          return define(place.values, key, value);
        },
        has: (_, key) => Reflect.has(place.values, key),
        deleteProperty: (_, key) => {
          touch(key);
          return Reflect.deleteProperty(place.values, key);
        },
        defineProperty: (_, key, descriptor) => {
          touch(key);
          note(key, descriptor.value);
          return define(place.values, key, descriptor.value);
        },
        ownKeys: () => Reflect.ownKeys(place.values),
        getOwnPropertyDescriptor: (_, key) => {
          const descriptor = Reflect.getOwnPropertyDescriptor(place.values, key);
          if (descriptor !== undefined) note(key, descriptor.value);
          return descriptor;
        },
        preventExtensions: () => false,
      },
    );
    const detach = () => {
      place.values = {};
    };
    return { state, detach };
  }

  /** Ends the initialization: a failed call sets the state back to what it is now. Throws a Failure. */
  begin() {
    const change = this.#change();
    if (change !== null) {
      this.#agree(change);
      this.#isUnsaved = true;
    }
    this.#isReady = true;
  }

  /** Returns the frame of what a successful call has changed, or null. Throws a Failure. */
  saveOf(callId) {
    this.isWaking = false;
    const change = this.#change();
    if (change === null) return null;
    return this.#frame(callId, change);
  }

  /**
   * Sets the state back to its last saved form. `isLoose`: code of the failed call may still run, so it keeps
   * none of the objects.
   */
  rollBack(isLoose) {
    this.isWaking = false;
    const names = new Set([...this.#touched, ...this.#given]);
    const kept = {};
    for (const [key, json] of this.#base) {
      const isKept = Object.hasOwn(this.#values, key) && (!names.has(key) || (!isLoose && this.#isSame(key, json)));
      define(kept, key, isKept ? this.#values[key] : JSON.parse(json));
    }
    for (const key of Reflect.ownKeys(this.#values)) delete this.#values[key];
    for (const key of Object.keys(kept)) define(this.#values, key, kept[key]);
    this.#touched.clear();
    this.#alarms.clear();
    if (isLoose) this.#given.clear();
  }

  /** Sets an alarm with the next save. Throws. */
  setAlarm(name, alarm) {
    this.#changeAlarm(name, alarmOf(name, alarm));
  }

  /** Cancels an alarm with the next save. Throws. */
  cancelAlarm(name) {
    checkName(name);
    this.#changeAlarm(name, JSON.stringify({ name }));
  }

  #changeAlarm(name, json) {
    if (!this.#isReady) throw new Error('the initializer runs at each start: set and cancel alarms in a call');
    this.#alarms.set(name, json);
  }

  /** Returns the alarms with the changes that are not saved yet, by name. Rejects. */
  async alarms(call) {
    if (!this.#isReady) throw new Error('the initializer runs at each start: list alarms in a call');
    if (this.#listing === null) throw new Error('the service is of a release that cannot list alarms');
    const connection = this.#connectionOf(call, 'list the alarms');
    const { alarms, error } = await new Promise((resolve, reject) => {
      this.#listing.push({ resolve, reject });
      connection.send(frame(FRAME.ALARMS, 0, this.#alarmsJson() || '[]'));
    });
    if (error !== undefined) throw new Error(error);
    return alarms;
  }

  /** Handles an ALARM_LIST. */
  listed(answer) {
    this.#listing?.shift()?.resolve(answer);
  }

  #connectionOf(call, purpose) {
    const connection = call?.connection ?? [...this.#connections].at(-1);
    if (connection !== undefined && !connection.isEnded) return connection;
    throw new Error(`there is no connection to the service that could ${purpose}`);
  }

  /** Saves the state now. Resolves when it is on disk. */
  async save(call) {
    if (!this.#isReady) throw new Error('a change of context.state in the initializer is saved with the first call');
    const change = this.#change();
    if (change === null) return;
    const connection = this.#connectionOf(call, 'save the state');
    const save = this.#frame(0, change);
    await new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      connection.send(save);
    });
  }

  /** Returns for how long code keeps the agent awake from now on; 0: it does not. */
  keptAwakeSeconds() {
    const nowMs = performance.now();
    let seconds = 0;
    for (const { endMs } of this.#awake) seconds = Math.max(seconds, Math.ceil((endMs - nowMs) / 1000));
    return seconds;
  }

  /** Keeps the agent awake until `promise` ends, for `seconds` at most. Returns its outcome. */
  async keepAwake(promise, seconds) {
    const held = { endMs: performance.now() + 1000 * seconds };
    this.#awake.add(held);
    this.#tellAwake();
    try {
      return await promise;
    } finally {
      this.#awake.delete(held);
      this.#tellAwake();
    }
  }

  #tellAwake() {
    // Without a connection the next greeting says it.
    const connection = [...this.#connections].at(-1);
    if (connection !== undefined && !connection.isEnded) connection.send(keepAwakeFrame(this.keptAwakeSeconds()));
  }

  /** Handles a SAVED. */
  saved() {
    this.#waiting.shift()?.resolve();
  }

  connected(connection) {
    this.#connections.add(connection);
  }

  /** Ends the waits for answers, after a data connection has ended. */
  disconnected(connection) {
    this.#connections.delete(connection);
    const waits = [...this.#waiting.splice(0), ...(this.#listing?.splice(0) ?? [])];
    for (const { reject } of waits) reject(new Error('the connection to the service ended before its answer'));
  }

  /** Returns the frame of what changed since the last call, or null. Never throws. */
  lastSave() {
    try {
      return this.saveOf(0);
    } catch {
      // Not JSON or too large: the document stays as it was saved last.
      return null;
    }
  }

  #isSame(key, json) {
    try {
      return toJson(this.#values[key], CANNOT) === json;
    } catch {
      return false;
    }
  }

  #change() {
    const names = new Set(this.#touched);
    if (this.#size <= COMPARED_CHARS) for (const key of this.#given) names.add(key);
    const parts = new Map();
    for (const key of names) {
      const json = this.#jsonOf(key);
      if (json !== this.#base.get(key)) parts.set(key, json);
    }
    if (parts.size === 0 && !this.#isUnsaved && this.#alarms.size === 0) {
      this.#touched.clear();
      return null;
    }
    const base = new Map();
    const texts = [];
    for (const key of Object.keys(this.#values)) {
      const json = parts.has(key) ? parts.get(key) : this.#base.get(key);
      if (json === undefined) continue;
      base.set(key, json);
      texts.push(`${JSON.stringify(key)}:${json}`);
    }
    const json = `{${texts.join()}}`;
    const bytes = Buffer.byteLength(json);
    if (bytes > this.#limitBytes)
      throw new Failure(CODE.TOO_LARGE, `context.state has ${bytes} bytes, more than the limit of ${this.#limitBytes}`);
    return { base, json, bytes };
  }

  /** Returns the JSON of a key; undefined for one that is absent or undefined. */
  #jsonOf(key) {
    const value = this.#values[key];
    if (!Object.hasOwn(this.#values, key) || value === undefined) return undefined;
    try {
      return toJson(value, CANNOT);
    } catch {
      // With the whole path.
      toJson({ [key]: value }, CANNOT);
      throw new Failure(CODE.NOT_JSON, `${CANNOT}: the value of ${JSON.stringify(key)} is a ${typeof value}`);
    }
  }

  /** Agrees on a change and returns its SAVE. */
  #frame(callId, change) {
    this.#agree(change);
    this.version += 1;
    const alarms = this.#alarmsJson();
    this.#alarms.clear();
    return saveFrame(callId, change.json, change.bytes, alarms);
  }

  /** Returns the changed alarms as JSON, or `''`. */
  #alarmsJson() {
    return this.#alarms.size === 0 ? '' : `[${[...this.#alarms.values()].join()}]`;
  }

  #agree({ base, json }) {
    this.#base = base;
    this.#size = json.length;
    this.#isUnsaved = false;
    this.#touched.clear();
  }
}

/** Assigns a key, also the key `__proto__`. */
function define(object, key, value) {
  return Reflect.defineProperty(object, key, { value, writable: true, enumerable: true, configurable: true });
}

module.exports = { Durable };
