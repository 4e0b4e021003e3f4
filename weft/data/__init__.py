"""Datasets and batches."""

from weft.data.dataset import Dataset as Dataset
from weft.data.dataset import Subset as Subset
from weft.data.dataset import TensorDataset as TensorDataset
from weft.data.dataset import random_split as random_split
from weft.data.loader import DataLoader as DataLoader
from weft.data.loader import collate as collate
