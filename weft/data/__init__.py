"""Datasets and batches."""

from weft.data.collate import collate as collate
from weft.data.collate import default_collate as default_collate
from weft.data.collate import default_convert as default_convert
from weft.data.combined import ChainDataset as ChainDataset
from weft.data.combined import ConcatDataset as ConcatDataset
from weft.data.combined import IterableDataset as IterableDataset
from weft.data.combined import StackDataset as StackDataset
from weft.data.dataset import Dataset as Dataset
from weft.data.dataset import Subset as Subset
from weft.data.dataset import TensorDataset as TensorDataset
from weft.data.dataset import random_split as random_split
from weft.data.loader import DataLoader as DataLoader
from weft.data.parts import Part as Part
from weft.data.samplers import BatchSampler as BatchSampler
from weft.data.samplers import RandomSampler as RandomSampler
from weft.data.samplers import Sampler as Sampler
from weft.data.samplers import SequentialSampler as SequentialSampler
from weft.data.samplers import SubsetRandomSampler as SubsetRandomSampler
from weft.data.samplers import WeightedRandomSampler as WeightedRandomSampler
from weft.data.worker import WorkerInfo as WorkerInfo
from weft.data.worker import get_worker_info as get_worker_info
from weft.data.workers import WorkerError as WorkerError
