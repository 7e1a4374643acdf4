import { startManager } from '../parts/pod-manager.ts';
import { describeRuntime } from '../suites/runtime.ts';
import { PYTHON_CODE, PYTHON_ENTRIES } from './python-entries.ts';

describeRuntime('python behind the manager of a pod', {
  codePath: PYTHON_CODE,
  entries: PYTHON_ENTRIES,
  readsInTurn: true,
  isLogLate: true,
  async start() {
    const started = await startManager();
    const order = started.order();
    await started.manager.start(order, AbortSignal.timeout(20_000));
    const ended = started.manager.wait(new AbortController().signal).then(({ code }) => code);
    ended.catch(() => undefined);
    return {
      endpoint: started.manager.endpoint,
      secret: order.secret,
      exited: ended,
      log: started.log,
      dispose: started.dispose,
    };
  },
});
