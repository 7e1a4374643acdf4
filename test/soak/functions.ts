/**
 * Command `npm run soak`, with `--seconds 300 --functions 50 --callers 64 --handler-ms 80 --kill-server`.
 * Many functions run under mixed load while instances are killed. The exit code is 1 when a call failed
 * without an excuse, or when a resource remains. Needs a build.
 */
import { parseArgs } from 'node:util';
import { ARGUMENTS } from '../../scripts/command.ts';
import { soakFunctions } from './function-load.ts';

const { values } = parseArgs({
  args: [...ARGUMENTS],
  options: {
    seconds: { type: 'string', default: '300' },
    functions: { type: 'string', default: '50' },
    instances: { type: 'string', default: '4' },
    callers: { type: 'string', default: '64' },
    'handler-ms': { type: 'string', default: '80' },
    'kill-every': { type: 'string', default: '500' },
    'kill-server': { type: 'boolean', default: false },
  },
});

const report = await soakFunctions({
  functions: Number(values.functions),
  instancesEach: Number(values.instances),
  callers: Number(values.callers),
  handlerMs: Number(values['handler-ms']),
  durationMs: Number(values.seconds) * 1000,
  killEveryMs: Number(values['kill-every']),
  killServer: values['kill-server'],
});
console.log(JSON.stringify(report, null, 2));
process.exitCode = report.faults.length === 0 ? 0 : 1;
