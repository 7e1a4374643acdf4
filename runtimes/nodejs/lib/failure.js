'use strict';

const { inspect } = require('node:util');
const { CODE, MAX_MESSAGE_CHARS } = require('./protocol.js');

const OURS = `${__dirname}/`;
const CANCELLED = new Map([
  ['timeout', 'the call timed out'],
  ['caller', 'the caller went away'],
  ['interrupt', 'the call was interrupted'],
  ['stop', 'the instance is stopping'],
]);

/** A failure with a code of the protocol. */
class Failure extends Error {
  constructor(code, message) {
    super(message.length > MAX_MESSAGE_CHARS ? `${message.slice(0, MAX_MESSAGE_CHARS)}...` : message);
    this.code = code;
  }
}

/** What the code of a cancelled call gets: the reason of its signal. */
class CallCancelled extends Error {
  constructor(reason) {
    super(CANCELLED.get(reason) ?? 'the call was cancelled');
    this.name = 'CallCancelled';
  }
}

/** The answer of a call that was cancelled. */
function cancelledFailure(reason) {
  if (reason === 'timeout') return new Failure(CODE.TIMEOUT, CANCELLED.get(reason));
  return handlerFailure(`CallCancelled: ${CANCELLED.get(reason)}`);
}

function handlerFailure(text) {
  return new Failure(CODE.HANDLER, `Fail to run user call handler. err: ${text}.`);
}

function stopping() {
  return new Failure(CODE.PROTOCOL, CANCELLED.get('stop'));
}

/** `TypeError: boom`, whatever was thrown and whatever its own code does. */
function textOf(error) {
  try {
    if (error instanceof Error || (typeof error === 'object' && error !== null && 'message' in error)) {
      const name = String(error.name || 'Error');
      const message = String(error.message);
      return message === '' ? name : `${name}: ${message}`;
    }
    return typeof error === 'string' ? error : inspect(error);
  } catch {
    return 'an error without a text';
  }
}

/** Writes what the user's code threw to stderr, in one piece and without lines of ours. */
function logError(title, error) {
  let trace;
  try {
    trace = inspect(error)
      .split('\n')
      .filter(line => !line.includes(OURS))
      .join('\n');
  } catch {
    trace = textOf(error);
  }
  log(`${title}\n${trace}`);
}

/** One message in the instance's log; never fails. */
function log(text) {
  try {
    process.stderr.write(`${text}\n`);
  } catch {
    // The user's code has closed or replaced it.
  }
}

module.exports = { CallCancelled, Failure, cancelledFailure, handlerFailure, log, logError, stopping, textOf };
