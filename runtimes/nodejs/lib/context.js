'use strict';

/** Matches a request id. Its first digits are the span id, by which the service finds a parent. */
const REQUEST = /^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-/;
const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})/;

/** The `context` parameter of handlers and hooks. Values of the call are computed on access. */
class CallContext {
  #facts;
  #call;
  #endMs;
  #traceparent;
  #logger;
  #view;

  /**
   * For an initializer or pre_stop `call` is null. `endMs` is then the time limit (`performance.now()`);
   * null: none.
   */
  constructor(facts, call, endMs, signal) {
    this.#facts = facts;
    this.#call = call;
    this.#endMs = endMs;
    if (signal !== undefined) Object.defineProperty(this, 'signal', { value: signal });
  }

  /** The id in every log of the request to which this call belongs. */
  get traceId() {
    return text(this.#header.traceId);
  }

  /** W3C trace context with the caller's trace id, or a random one, and a span id of this call. */
  get traceparent() {
    if (this.#traceparent === undefined) {
      const known = TRACEPARENT.exec(text(this.#header.traceparent));
      const { randomBytes } = require('node:crypto');
      const trace = known === null ? randomBytes(16).toString('hex') : known[1];
      const ours = REQUEST.exec(this.requestId);
      const span = ours === null ? randomBytes(8).toString('hex') : ours.slice(1).join('');
      this.#traceparent = `00-${trace}-${span}-${known === null ? '01' : known[2]}`;
    }
    return this.#traceparent;
  }

  /** The id of this call. */
  get requestId() {
    return text(this.#header.requestId);
  }

  /** The session that the caller named, or an empty text. */
  get sessionId() {
    return text(this.#header.sessionId);
  }

  /** The headers of the call, with names in lower case. Empty without a call. */
  get headers() {
    return this.#header.headers ?? {};
  }

  /** The UUID of the instance. */
  get instanceId() {
    return text(this.#facts.init.instanceId);
  }

  /** The tenant that owns the instance. */
  get tenant() {
    return text(this.#facts.init.tenant);
  }

  /** The namespace of the instance. */
  get namespace() {
    return text(this.#facts.init.namespace);
  }

  /** The name of the instance. */
  get name() {
    return text(this.#facts.init.name);
  }

  /** The name of the registered function; empty for an agent that was created without one. */
  get functionName() {
    return text(this.#facts.init.functionName);
  }

  /** The version of the function; empty without a function. */
  get version() {
    return text(this.#facts.init.version);
  }

  /**
   * The service in the function's name (`0@service@function`), or the namespace if the name has no service.
   */
  get package() {
    const parts = this.functionName.split('@');
    return parts.length === 3 ? parts[1] : this.namespace;
  }

  /** The memory of the instance in megabytes. */
  get memoryMb() {
    return this.#facts.init.memoryMb;
  }

  /** The CPU share of the instance in thousandths of a core. */
  get cpuMillis() {
    return this.#facts.init.cpuMillis;
  }

  /**
   * An object that all calls share. It exists as long as the instance; that of a durable agent is saved
   * before a call is answered, and it survives restarts.
   */
  get state() {
    if (this.#facts.durable === null) return this.#facts.state;
    this.#view ??= this.#call === null ? this.#facts.durable.view() : this.#call.viewOf(this.#facts.durable);
    return this.#view.state;
  }

  /** Saves `state` now. Resolves when it is on disk. What is saved so stays if the call fails later. */
  async save() {
    await this.#durable.save(this.#call);
  }

  /**
   * Calls the agent later, also if it sleeps then. The same name replaces an alarm that is set. The alarm is
   * saved with the call, so a call that fails sets none. Throws.
   */
  setAlarm(name, alarm) {
    this.#assertRuns();
    this.#durable.setAlarm(name, alarm);
  }

  /** Cancels an alarm, with the save of the call. Without effect if there is none of this name. */
  cancelAlarm(name) {
    this.#assertRuns();
    this.#durable.cancelAlarm(name);
  }

  /** Returns the alarms of this agent, by name, with what this call has set and cancelled. Rejects. */
  async alarms() {
    this.#assertRuns();
    return await this.#durable.alarms(this.#call);
  }

  /**
   * Keeps the agent awake until `promise` ends, for 1 to 3600 seconds. Resolves or rejects as `promise` does.
   */
  async keepAwake(promise, seconds = 300) {
    if (typeof seconds !== 'number' || !(seconds >= 1 && seconds <= 3600))
      throw new Error('keepAwake takes 1 to 3600 seconds');
    return await this.#durable.keepAwake(promise, seconds);
  }

  /** Throws after a cancellation: what the code does then must not reach a later save. */
  #assertRuns() {
    if (this.#call !== null && this.#call.reason !== null) throw new Error('the call was cancelled');
  }

  /** True in the initializer and in the first call after a start with a saved state. */
  get isWaking() {
    return this.#facts.durable?.isWaking ?? false;
  }

  /** Why the agent was started last; undefined for an agent that is not durable. */
  get wake() {
    return this.#facts.durable?.wake;
  }

  /** Time at which the call ends, in milliseconds since the epoch; undefined without a limit. */
  get deadline() {
    const left = this.remainingMs();
    return left === undefined ? undefined : Date.now() + left;
  }

  /** Returns the milliseconds until the call ends, at least 0; undefined without a limit. */
  remainingMs() {
    const endMs = this.#call === null ? this.#endMs : this.#call.endMs();
    return endMs === null ? undefined : Math.max(0, endMs - performance.now());
  }

  /** Returns the environment variable `key`, or `otherwise` if it is not set. */
  env(key, otherwise) {
    return process.env[key] ?? otherwise;
  }

  /** Aborts when the call is cancelled. */
  get signal() {
    return this.#call.signal();
  }

  /** Writes to the log of the instance (stderr), with the trace id. */
  get logger() {
    this.#logger ??= new Logger(this.traceId || '-');
    return this.#logger;
  }

  /**
   * Calls `work` with a span, a named part of this call. Returns its result. `attributes` is optional.
   */
  span(name, attributes, work = attributes) {
    const { NO_SPAN, Spans } = require('./spans.js');
    if (this.#call === null) return work(NO_SPAN);
    this.#call.spans ??= new Spans();
    return this.#call.spans.run(name, work === attributes ? null : attributes, work);
  }

  /** Returns the stream of the call. Throws if the caller did not ask for text/event-stream. */
  getStream() {
    const stream = this.#call === null ? null : this.#call.stream();
    if (stream === null) throw new Error('there is no stream: the caller did not ask for text/event-stream');
    return stream.writer;
  }

  get #durable() {
    if (this.#facts.durable === null) throw new Error('this agent is not durable: create it with "durable": true');
    return this.#facts.durable;
  }

  get #header() {
    return this.#call === null ? {} : this.#call.header();
  }
}

/** Writes lines to the instance's log (stderr), with the trace id. */
class Logger {
  #traceId;

  constructor(traceId) {
    this.#traceId = traceId;
  }

  debug(...values) {
    this.#write('DEBUG', values);
  }

  info(...values) {
    this.#write('INFO', values);
  }

  warn(...values) {
    this.#write('WARNING', values);
  }

  error(...values) {
    this.#write('ERROR', values);
  }

  #write(level, values) {
    const { format } = require('node:util');
    process.stderr.write(`${new Date().toISOString()} ${level} [${this.#traceId}] ${format(...values)}\n`);
  }
}

function text(value) {
  return typeof value === 'string' ? value : '';
}

module.exports = { CallContext };
