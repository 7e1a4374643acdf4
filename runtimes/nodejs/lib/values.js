'use strict';

const { Failure, textOf } = require('./failure.js');
const { CODE } = require('./protocol.js');

/** The JSON of a value that a handler returned; nothing is `null`. Fails with 4007. */
function toJson(value) {
  let json;
  try {
    json = JSON.stringify(value);
    // NaN and infinite numbers become null in silence, so only a text with a null in it can have had one.
    if (json?.includes('null')) JSON.stringify(value, refuseNotFinite);
  } catch (error) {
    throw notJson(textOf(error));
  }
  if (json !== undefined) return json;
  if (value === undefined) return 'null';
  throw notJson(`it is a ${typeof value}`);
}

function refuseNotFinite(_key, value) {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new RangeError(`${value} is not JSON`);
  return value;
}

function notJson(why) {
  return new Failure(CODE.NOT_JSON, `the returned value cannot be turned into JSON: ${why}`);
}

function assertSize(bytes, limit) {
  if (bytes > limit) {
    throw new Failure(CODE.TOO_LARGE, `response body size ${bytes} exceeds the limit of ${limit}`);
  }
}

module.exports = { assertSize, toJson };
