import { e2bPackages } from './environments.ts';
import { describeFlow } from './flow.ts';

describeFlow('charts of the code interpreter of the E2B SDK', {
  file: 'charts.py',
  environment: 'python',
  env: async () => ({ PACKAGES: e2bPackages.codeOf('code-charts') }),
});
