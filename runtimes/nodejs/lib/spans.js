'use strict';

const { textOf } = require('./failure.js');
const { FRAME, messageFrame } = require('./protocol.js');

/** Limits of the spans of one call. They are those of `callSpans` in src/core/limits.ts. */
const MAX_SPANS = 128;
const MAX_NAME_CHARS = 128;
const MAX_ATTRIBUTES = 16;
const MAX_KEY_CHARS = 64;
const MAX_VALUE_CHARS = 256;
const MAX_CHARS = 32_768;
/** Characters that a span costs in addition to its texts. */
const SPAN_CHARS = 32;

/** Holds the innermost span of the running code; created by the first span of the instance. */
let current = null;

/** The spans of one call. */
class Spans {
  #spans = [];
  #leftChars = MAX_CHARS;
  #dropped = 0;

  /**
   * Calls `work` with a span and returns its result. The span ends when the result does, and fails with it.
   */
  run(name, attributes, work) {
    const { AsyncLocalStorage } = require('node:async_hooks');
    current ??= new AsyncLocalStorage();
    const outer = current.getStore();
    const span = this.#start(name, outer?.owner === this ? outer.index : undefined);
    const handle = { set: (key, value) => this.#set(span, textOfValue(key), value) };
    for (const [key, value] of Object.entries(attributes ?? {})) handle.set(key, value);
    const scope = span === null ? outer : { owner: this, index: this.#spans.length - 1 };
    return settle(
      () => current.run(scope, work, handle),
      failure => end(span, failure),
    );
  }

  /** Returns the SPANS frame of a call whose handler began at `beganMs`. Open spans end now. */
  frame(callId, beganMs) {
    const nowMs = performance.now();
    const spans = this.#spans.map(({ startMs, endMs = nowMs, ...span }) => ({
      ...span,
      startMicros: micros(startMs - beganMs),
      micros: micros(endMs - startMs),
    }));
    return messageFrame(FRAME.SPANS, callId, { spans, dropped: this.#dropped });
  }

  /** Returns a span that starts now; null if the call has too many. */
  #start(name, parent) {
    const text = textOfValue(name).slice(0, MAX_NAME_CHARS);
    const chars = text.length + SPAN_CHARS;
    if (this.#spans.length >= MAX_SPANS || chars > this.#leftChars) {
      this.#dropped += 1;
      return null;
    }
    this.#leftChars -= chars;
    const span = {
      name: text,
      parent,
      startMs: performance.now(),
      endMs: undefined,
      attributes: undefined,
      error: undefined,
    };
    this.#spans.push(span);
    return span;
  }

  #set(span, key, value) {
    if (span === null || value === undefined || value === null) return;
    const isPlain = typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value));
    const shown = isPlain ? value : textOfValue(value).slice(0, MAX_VALUE_CHARS);
    const attributes = new Map(Object.entries(span.attributes ?? {}));
    const known = attributes.get(key);
    const chars = String(shown).length + key.length - (known === undefined ? 0 : String(known).length);
    const isFull = known === undefined && attributes.size >= MAX_ATTRIBUTES;
    if (key.length > MAX_KEY_CHARS || isFull || chars > this.#leftChars) {
      this.#dropped += 1;
      return;
    }
    this.#leftChars -= chars;
    attributes.set(key, shown);
    span.attributes = Object.fromEntries(attributes);
  }
}

/** Does nothing with what a span is given. Used where no call runs. */
const NO_SPAN = { set: () => undefined };

/** Calls `work`, and `ended` when its result is there, with null or `{error}`. Returns the result. */
function settle(work, ended) {
  let result;
  try {
    result = work();
  } catch (error) {
    ended({ error });
    throw error;
  }
  if (typeof result?.then !== 'function') {
    ended(null);
    return result;
  }
  return Promise.resolve(result).then(
    value => {
      ended(null);
      return value;
    },
    error => {
      ended({ error });
      throw error;
    },
  );
}

function end(span, failure) {
  if (span === null) return;
  span.endMs = performance.now();
  if (failure !== null) span.error = textOf(failure.error).slice(0, MAX_VALUE_CHARS);
}

function micros(ms) {
  return Math.max(0, Math.round(ms * 1000));
}

/** Returns any value as text. Never throws, even if the value's own code does. */
function textOfValue(value) {
  try {
    return typeof value === 'object' ? JSON.stringify(value) : String(value);
  } catch {
    return '<no text>';
  }
}

module.exports = { NO_SPAN, Spans };
