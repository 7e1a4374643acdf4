'use strict';

const { toJson } = require('./values.js');

const MAX_NAME_CHARS = 128;
const MAX_PAYLOAD_BYTES = 16 * 1024;
const LEAST_EVERY_SECONDS = 5;
const FORMS = ['at', 'after', 'every', 'cron'];
const CONTROL = /\p{Cc}/u;

/** Throws if no alarm can have this name. */
function checkName(name) {
  if (typeof name === 'string' && name !== '' && [...name].length <= MAX_NAME_CHARS && !CONTROL.test(name)) return;
  throw new Error(`the name of an alarm must be a text of 1 to ${MAX_NAME_CHARS} characters, none a control character`);
}

/**
 * Returns an alarm as a SAVE carries it, as JSON. Throws. The service checks the rest: `cron`, `tz`, and the
 * number of alarms.
 */
function alarmOf(name, { at, after, every, cron, tz, payload = null, maxLateSeconds } = {}) {
  checkName(name);
  const given = FORMS.filter(form => ({ at, after, every, cron })[form] !== undefined);
  if (given.length !== 1) throw new Error('an alarm needs exactly one of at, after, every and cron');
  const json = toJson(payload, 'the payload of an alarm cannot be turned into JSON');
  const bytes = Buffer.byteLength(json);
  if (bytes > MAX_PAYLOAD_BYTES)
    throw new Error(`the payload of an alarm has ${bytes} bytes, more than the limit of ${MAX_PAYLOAD_BYTES}`);
  const times = JSON.stringify({
    name,
    // From now on, not from the save at the end of the call.
    at: after === undefined ? timeOf(at) : Math.round(Date.now() + 1000 * secondsOf('after', after, 0)),
    every: secondsOf('every', every, LEAST_EVERY_SECONDS),
    cron,
    tz,
    max_late_seconds: secondsOf('maxLateSeconds', maxLateSeconds, 0),
  });
  return `${times.slice(0, -1)},"payload":${json}}`;
}

function secondsOf(name, value, least) {
  if (value === undefined || (typeof value === 'number' && value >= least && value < 1e10)) return value;
  throw new Error(`${name} must be a number of seconds, at least ${least}`);
}

/** Returns milliseconds since the epoch, or the text of RFC 3339. */
function timeOf(value) {
  if (value === undefined || typeof value === 'string') return value;
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value.getTime();
  if (Number.isFinite(value)) return Math.round(value);
  throw new Error('at must be a Date, milliseconds since the epoch, or a text of RFC 3339');
}

module.exports = { alarmOf, checkName };
