'use strict';

const { Failure, textOf } = require('./failure.js');
const { CODE } = require('./protocol.js');

/** Texts in JSON that may represent a value that JSON cannot express. */
const SUSPECT = /null|\{\}|"_(?:readable|writable)State"/;
/** Classes whose objects become `{}` in JSON, with a hint what to return instead. */
const INSTEAD = new Map([
  ['Response', 'return its text or its parsed body'],
  ['Request', 'return its text or its parsed body'],
  ['ReadableStream', 'read it, or yield its parts from a generator'],
  ['Blob', 'return its text'],
  ['FormData', 'return an object of its fields'],
  ['Headers', 'return an object of its fields'],
  ['Promise', 'await it'],
]);
const MAX_PATH_CHARS = 300;

/** Returns the JSON of a value; undefined becomes `null`. Fails with 4007; `cannot` begins the message. */
function toJson(value, cannot = 'the returned value cannot be turned into JSON') {
  let json;
  try {
    json = JSON.stringify(value);
  } catch (error) {
    const found = findRefused(value);
    throw notJson(cannot, (found?.why ?? textOf(error)) + (found?.at ?? ''));
  }
  // NaN silently becomes null, and some objects become {}. Only a JSON text with those needs a search.
  const found = json !== undefined && SUSPECT.test(json) ? findRefused(value) : null;
  if (found?.why) throw notJson(cannot, found.why + found.at);
  if (json !== undefined) return json;
  if (value === undefined) return 'null';
  throw notJson(cannot, `it is a ${typeof value}`);
}

/**
 * Returns the first part of a value that JSON cannot express, with reason and place. A null reason means the
 * serializer's error.
 */
function findRefused(value) {
  const parents = new Set();
  const visit = (given, key, path) => {
    const refused = why => ({ why, at: path === '' ? '' : `, at $${path.slice(0, MAX_PATH_CHARS)}` });
    let part = given;
    try {
      if (typeof part?.toJSON === 'function') part = part.toJSON(key);
    } catch {
      return refused(null);
    }
    if (typeof part === 'number' && !Number.isFinite(part)) return refused(`RangeError: ${part} is not JSON`);
    if (typeof part === 'bigint' || parents.has(part)) return refused(null);
    if (typeof part !== 'object' || part === null) return null;
    const why = whyForeign(part);
    if (why !== null) return refused(why);
    parents.add(part);
    const isList = Array.isArray(part);
    for (const name of Object.keys(part)) {
      const found = visit(part[name], name, path + (isList ? `[${name}]` : keyText(name)));
      if (found !== null) return found;
    }
    parents.delete(part);
    return null;
  };
  try {
    return visit(value, '', '');
  } catch {
    // The value is nested deeper than the stack allows, or the user's objects have thrown.
    return null;
  }
}

function keyText(name) {
  return /^[A-Za-z_$][\w$]{0,63}$/.test(name) ? `.${name}` : `[${JSON.stringify(name.slice(0, 64))}]`;
}

function whyForeign(part) {
  if (typeof part.pipe === 'function' && (part._readableState || part._writableState)) {
    return 'a stream is not JSON: read it, or yield its parts from a generator';
  }
  const name = Object.prototype.toString.call(part).slice(8, -1);
  return INSTEAD.has(name) ? `a ${name} is not JSON: ${INSTEAD.get(name)}` : null;
}

function notJson(cannot, why) {
  return new Failure(CODE.NOT_JSON, `${cannot}: ${why}`);
}

function assertSize(bytes, limit) {
  if (bytes > limit) {
    throw new Failure(CODE.TOO_LARGE, `response body size ${bytes} exceeds the limit of ${limit}`);
  }
}

module.exports = { assertSize, toJson };
