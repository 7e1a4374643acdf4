'use strict';

const fs = require('node:fs');
const path = require('node:path');

/** Syntax that only ECMAScript modules have at the beginning of a line. */
const MODULE_SYNTAX = /^\s*(?:import\s*[\w{*'"]|export\s*[\w{*])/m;

/**
 * Returns true if Node loads a file as an ECMAScript module: by its extension, the nearest package.json, or
 * its syntax.
 */
function isEcmaScriptModule(file) {
  if (/\.m[jt]s$/.test(file)) return true;
  if (/\.c[jt]s$/.test(file)) return false;
  const type = packageType(path.dirname(file));
  return type === undefined ? MODULE_SYNTAX.test(fs.readFileSync(file, 'utf8')) : type === 'module';
}

/** Returns `type` of the nearest package.json, or undefined. */
function packageType(directory) {
  for (let at = directory; ; at = path.dirname(at)) {
    try {
      return JSON.parse(fs.readFileSync(path.join(at, 'package.json'), 'utf8')).type;
    } catch (error) {
      // A broken package.json is still the nearest one. Node reports the fault.
      if (error.code === undefined || at === path.dirname(at)) return undefined;
    }
  }
}

module.exports = { isEcmaScriptModule };
