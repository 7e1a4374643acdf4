'use strict';

/** `signal.reason` of a cancelled call, and the error that rejects the writes to its stream. */
exports.CallCancelled = require('./lib/failure.js').CallCancelled;
