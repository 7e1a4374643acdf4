'use strict';

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})/;

/** The `context` parameter of handlers and hooks. Values of the call are computed on access. */
class CallContext {
  #facts;
  #call;
  #endMs;
  #traceparent;
  #logger;

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

  get traceId() {
    return text(this.#header.traceId);
  }

  /** W3C trace context with the caller's trace id, or a random one, and a span id of this call. */
  get traceparent() {
    if (this.#traceparent === undefined) {
      const known = TRACEPARENT.exec(text(this.#header.traceparent));
      const { randomBytes } = require('node:crypto');
      const trace = known === null ? randomBytes(16).toString('hex') : known[1];
      this.#traceparent = `00-${trace}-${randomBytes(8).toString('hex')}-${known === null ? '01' : known[2]}`;
    }
    return this.#traceparent;
  }

  get requestId() {
    return text(this.#header.requestId);
  }

  get sessionId() {
    return text(this.#header.sessionId);
  }

  get headers() {
    return this.#header.headers ?? {};
  }

  get instanceId() {
    return text(this.#facts.init.instanceId);
  }

  get tenant() {
    return text(this.#facts.init.tenant);
  }

  get namespace() {
    return text(this.#facts.init.namespace);
  }

  get name() {
    return text(this.#facts.init.name);
  }

  get functionName() {
    return text(this.#facts.init.functionName);
  }

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

  get memoryMb() {
    return this.#facts.init.memoryMb;
  }

  get cpuMillis() {
    return this.#facts.init.cpuMillis;
  }

  get state() {
    return this.#facts.state;
  }

  /** Time at which the call ends, in milliseconds since the epoch; undefined without a limit. */
  get deadline() {
    const left = this.remainingMs();
    return left === undefined ? undefined : Date.now() + left;
  }

  remainingMs() {
    const endMs = this.#call === null ? this.#endMs : this.#call.endMs();
    return endMs === null ? undefined : Math.max(0, endMs - performance.now());
  }

  env(key, otherwise) {
    return process.env[key] ?? otherwise;
  }

  get signal() {
    return this.#call.signal();
  }

  get logger() {
    this.#logger ??= new Logger(this.traceId || '-');
    return this.#logger;
  }

  getStream() {
    const stream = this.#call === null ? null : this.#call.stream();
    if (stream === null) throw new Error('there is no stream: the caller did not ask for text/event-stream');
    return stream.writer;
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
