import { describeFlow } from './flow.ts';

describeFlow('sandboxes of the E2B SDK over a killed service', { file: 'survival.py', environment: 'python' });
