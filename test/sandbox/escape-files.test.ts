import { describeEscapeFiles } from '../suites/escape-files.ts';
import { ProcessFixture } from './process-fixture.ts';

describeEscapeFiles('a process sandbox', { isSeen: true }, async () => {
  const fixture = new ProcessFixture();
  return {
    driver: fixture.driver(),
    codePath: fixture.codePath,
    spec: changes => fixture.spec(changes),
    dispose: () => fixture.dispose(),
  };
});
