'use strict';

/** `signal.reason` of a call that was cancelled, and what the writes to its stream fail with. */
exports.CallCancelled = require('./lib/failure.js').CallCancelled;
