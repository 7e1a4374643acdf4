'use strict';

exports.stop = () => undefined;
