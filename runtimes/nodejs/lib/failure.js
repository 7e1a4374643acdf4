'use strict';

const { inspect } = require('node:util');
const { CODE, MAX_MESSAGE_CHARS } = require('./protocol.js');

const OURS = `${__dirname}/`;
const NODES_OWN = /^\s+at .*\(?node:internal\//;
const CANCELLED = new Map([
  ['timeout', 'the call timed out'],
  ['caller', 'the caller went away'],
  ['interrupt', 'the call was interrupted'],
  ['stop', 'the instance is stopping'],
]);

/** A failure with an error code of the protocol. */
class Failure extends Error {
  constructor(code, message) {
    super(message.length > MAX_MESSAGE_CHARS ? `${message.slice(0, MAX_MESSAGE_CHARS)}...` : message);
    this.code = code;
  }
}

/** The reason of the signal in a cancelled call. */
class CallCancelled extends Error {
  constructor(reason) {
    super(CANCELLED.get(reason) ?? 'the call was cancelled');
    this.name = 'CallCancelled';
  }
}

/** Returns the failure that answers a cancelled call. */
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

/**
 * Returns a text such as `TypeError: boom`. Never throws, whatever was thrown and whatever its own code does.
 */
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

/**
 * Writes an error of the user's code to stderr in one piece, without stack frames of the runtime and of Node.
 */
function logError(title, error) {
  let trace;
  try {
    trace = inspect(error)
      .split('\n')
      .filter(line => !line.includes(OURS) && !NODES_OWN.test(line))
      .join('\n');
  } catch {
    trace = textOf(error);
  }
  log(`${title}\n${trace}`);
}

/** Writes one message to the instance's log. Never throws. */
function log(text) {
  try {
    process.stderr.write(`${text}\n`);
  } catch {
    // The user's code has closed or replaced stderr.
  }
}

module.exports = { CallCancelled, Failure, cancelledFailure, handlerFailure, log, logError, stopping, textOf };
