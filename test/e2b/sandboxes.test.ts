import { describeFlow } from './flow.ts';

describeFlow('sandboxes of the E2B SDK', { file: 'sandboxes.py', environment: 'python' });
